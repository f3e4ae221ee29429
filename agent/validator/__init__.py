"""The validator: checks of a node's GPU software, their files, and the steps that run them.

A check looks once and returns a value; `step_run` repeats it to its deadline. Nothing here changes the node but the
files in /run/nvidia/validations.
"""

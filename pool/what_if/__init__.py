"""Why a pod waits, where a pod would be placed now, and what would help: on an allocation state, which is as before.

One engine: the leader's condition and Event, `kubectl gpu why | whatif`, `simulate` and the console word its answers.
"""

"""A node's devices, as a pure core: discovery, identity, readiness, health and assignment.

Reads labels, features and samples as values; returns desired objects and decisions with reasons.
No I/O, no clock: the time is an argument.
"""

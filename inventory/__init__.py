"""What a node has, as a pure core: discovery, identity, readiness, assignment and health.

Reads labels, features and samples as values; returns desired objects and decisions with reasons.
No I/O, no clock: the time is an argument.
"""

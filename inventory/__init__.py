"""What a node has, as a pure core: sources of facts, their merging, identity, readiness, assignment, health.

Reads labels, features and samples as values, returns desired objects and verdicts with reasons. No I/O, no
clock: whoever asks says what time it is.
"""

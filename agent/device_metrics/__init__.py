"""Metrics of the node's devices: the text of their page, the containers that hold them, and its answers in time."""

"""Health of the node's devices: samples, events and verdicts."""

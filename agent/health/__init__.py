"""Health of the node's devices: states, their tracker, and the watch of driver events."""

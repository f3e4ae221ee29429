"""Resets of the node's devices that their GPUDevices ask for; no decision about repairs."""

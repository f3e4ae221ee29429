"""The node's devices: collected, and published as a NodeFeature, a CDI specification and files for the plugins."""

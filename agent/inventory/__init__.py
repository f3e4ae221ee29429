"""Collects the node's devices and publishes them: NodeFeature, CDI and files for the plugins."""

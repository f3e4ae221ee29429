"""Settings as an object: the definition of GPUControlPlaneConfig, its use at the start, and its changes."""

"""Where the five systems meet: pools, node software, NVIDIA's kinds, autoscaling and kernel caches in one cluster."""

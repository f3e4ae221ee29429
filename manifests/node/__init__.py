"""Workloads on GPU nodes: the agent and the device plugins."""

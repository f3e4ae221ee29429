"""Kubelet as the agent sees it: the PodResources API, the node's pods and their processes."""

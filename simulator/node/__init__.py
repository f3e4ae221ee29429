"""Fakes of node software: kubelet, the pools' plugins, the node agent, and NFD."""

"""Fakes of what runs nodes' software: DaemonSet controller, kubelet, the pools' plugins, node agent, and NFD."""

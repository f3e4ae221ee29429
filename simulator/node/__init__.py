"""Node doubles: kubelet, the pools' plugins, the node agent, and NFD."""

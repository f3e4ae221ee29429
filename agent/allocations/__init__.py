"""Reports what kubelet allocated, and which pods still hold units."""

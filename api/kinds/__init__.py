"""The kinds: of pools and devices, of kernel caches (group `gkm.io`), and of NVIDIA's GPU Operator (`nvidia`)."""

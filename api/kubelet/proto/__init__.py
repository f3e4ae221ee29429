"""Kubelet's published `.proto` files, verbatim, and the Python modules that `make proto` generates from them."""

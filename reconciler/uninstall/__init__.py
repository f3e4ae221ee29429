"""Removal of the control plane from a cluster: what is there, what goes in which order, and doing it."""

"""Deployments of the control plane: server, kube-scheduler and console, on one common form."""

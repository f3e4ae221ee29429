"""Kubernetes manifests as pure builders: installation, node workloads, monitoring.

A builder takes values and returns plain dictionaries in a fixed order; the server applies them and
the command line prints them.
"""

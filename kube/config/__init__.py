"""Connections to an API server: from a kubeconfig or from the pod's service account."""

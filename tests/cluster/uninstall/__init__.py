"""The control plane removed from a real API server."""

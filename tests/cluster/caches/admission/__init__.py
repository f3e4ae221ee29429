"""Caches at the webhooks of a real API server."""

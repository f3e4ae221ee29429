"""Strategies of the kinds that the API server treats specially."""

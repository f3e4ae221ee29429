"""Readiness of a node for pooling: node software and bootstrap phases."""

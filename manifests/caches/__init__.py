"""Builders for kernel caches: definitions of GKM's kinds."""

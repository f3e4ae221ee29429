"""Pods as observed, pending or reported by nodes."""

"""Prometheus alerts."""

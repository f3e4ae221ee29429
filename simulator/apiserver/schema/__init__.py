"""Structural schemas: defaulting, pruning, validation and list types."""

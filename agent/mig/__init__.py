"""Partitioning of MIG-capable devices: the plan, its execution and its progress."""

"""Upgrades of the driver in a fault run: a ClusterPolicy that changes, and what must be true of nodes meanwhile.

Nothing in here may import what it judges, as in the package around it.
"""

"""A ClusterPolicy and its drivers from the first object to the last.

A package, so that the installation (conftest.py) lasts from the first of its tests to the last, and no longer.
"""

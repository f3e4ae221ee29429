"""Pools that scale, with the unmodified Karpenter.

A package, so that Karpenter and the installation (conftest.py) last from the first of its tests to the last, and no longer.
"""

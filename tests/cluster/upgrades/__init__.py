"""Drivers are upgraded by the server, one node after the other.

A package, so that the installation (conftest.py) lasts from the first of its tests to the last, and no longer.
"""

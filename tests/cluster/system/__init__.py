"""The whole system on an unmodified Kubernetes, installed as a user installs it.

A package, so that the installation (conftest.py) lasts from the first of its tests to the last.
"""

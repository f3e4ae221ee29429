"""The HTTP edge: listener, limits, endpoints, authentication and readiness.

Knows the decisions of `admission` and `scheduler`, and no controller.
"""

"""What a cluster needs, as pure builders: CRDs, webhook configurations, RBAC, scheduler configuration.

A builder takes values and returns plain dictionaries in a fixed order; `server` prints or applies them.
"""

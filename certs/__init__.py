"""The CA and serving certificates: issue, rotate, inject the caBundle, reload in place.

Or read them from files that cert-manager mounts. Deciding (`validity`, `issuance`) is apart from doing.
"""

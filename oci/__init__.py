"""The adapter of OCI registries: manifests, blobs, referrers, uploads; bounded in bytes, layers and time.

Nothing here knows what an image holds.
"""

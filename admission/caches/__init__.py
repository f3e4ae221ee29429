"""Admission of GKMCaches and ClusterGKMCaches: the image's digest, its signatures, and annotations that prove both.

Registries are asked by the port of `cache_images`; everything else is pure.
"""

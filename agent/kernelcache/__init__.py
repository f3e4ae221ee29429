"""Kernel caches on the node: what to have, pulls, the node's objects, and the volumes of pods; the store is `content`."""

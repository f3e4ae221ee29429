"""The node's store of kernel caches: extraction, content by digest, mounts, and the volumes that use it."""

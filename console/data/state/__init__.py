"""What is known of the cluster: the server's caches, filled by informers, and the keys of what changed."""

"""What is known of the cluster: the server's stores, filled by informers, and the keys of what changed."""

"""Keys that all replicas of the server share."""

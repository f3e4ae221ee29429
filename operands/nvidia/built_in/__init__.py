"""States that only the built-in policy has: the policy that the server's settings describe, where no ClusterPolicy does."""

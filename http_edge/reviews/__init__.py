"""Reviews by the API server: who shows a token, and what its user may read."""

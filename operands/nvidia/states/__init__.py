"""The states of a ClusterPolicy, one module each: its condition, its needs and its transforms."""

"""The cluster as the console knows it: informers, the allocation state that they fill, rows, and what changed in them."""

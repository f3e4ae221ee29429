"""What is read of a pool and of a pod that waits, the allocation state made of it, and its explanation."""

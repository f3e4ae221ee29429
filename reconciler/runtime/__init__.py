"""The runtime of controllers: queue, device store, expectations, status writes and eviction."""

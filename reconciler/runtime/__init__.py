"""The runtime of controllers: queue, stores, expectations, status writes and eviction."""

"""The runtime of controllers: queue, stores, expectations, conditions, Events and eviction."""

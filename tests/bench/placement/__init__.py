"""The laboratory of strategies: nodes of the trace openb in milli of a device, published rankings, Go's generator."""

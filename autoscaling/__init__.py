"""Demand that a pool cannot serve, into requests for nodes, and what becomes of these.

Pure: every decision is a value with its reason. It asks the same index as admission and the scheduler's extender: a node
that is expected is a node of a `pool.index.device_index.DeviceIndex` that nothing can be bound to.
"""

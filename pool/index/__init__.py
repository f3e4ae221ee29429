"""The device index: devices by node and pool, claims on their units, and views of a node."""

"""Whether a node is ready for pooling: node software and bootstrap phases."""

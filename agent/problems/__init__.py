"""Problems of the node: a registry, files between processes, and the condition."""

"""Problems of the node: the registry, the files between processes, and the condition."""

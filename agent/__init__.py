"""The node agent: discovers, monitors and partitions devices, and serves them to kubelet."""

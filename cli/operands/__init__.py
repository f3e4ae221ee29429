"""The command `operands`: what a ClusterPolicy and NVIDIADrivers would bring to nodes, from files and without a cluster."""

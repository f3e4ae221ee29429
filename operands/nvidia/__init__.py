"""The node software that a ClusterPolicy and NVIDIADrivers describe: which states there are, and what each brings.

States have the names, numbers and assets of NVIDIA's GPU Operator. All of it is pure: objects follow from the spec, the
environment's images and the software of the nodes, and never from a status. What differs between nodes (system, kernel,
container runtime) is resolved for each group of nodes, so a node of another system changes nothing on the others.
"""

"""Node software of ClusterPolicies and NVIDIADrivers: their objects, their status, and the labels of nodes that they need."""

"""Drivers of nodes, as a ClusterPolicy and an NVIDIADriver describe them alike: groups of nodes, and the DaemonSet of each."""

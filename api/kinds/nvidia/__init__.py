"""ClusterPolicy and NVIDIADriver: the kinds of NVIDIA's GPU Operator, field by field as it publishes them."""

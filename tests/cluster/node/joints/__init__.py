"""The whole cluster of tests/cluster/joints with one node of real containers."""

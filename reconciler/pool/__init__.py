"""Controllers of pools: status, lifecycle, effective allocation, workloads and node labels."""

"""From node reports to the devices of a node: sources, merging, resolution and the plan."""

"""From node reports to the devices of a node: sources, merge, resolution and the plan."""

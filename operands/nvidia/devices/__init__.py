"""How the pods of operands get the devices of their node, and into which instances these are divided."""

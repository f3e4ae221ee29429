"""Values of a node's free devices: published fragmentation (FGD), and what a node can still take in. Pure; both
the live index and the simulation ask them.
"""

"""Values of a node's free devices: published fragmentation (FGD), and what a node can still take in.

Pure; the live index and the simulation ask the same code.
"""

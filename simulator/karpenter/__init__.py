"""A scripted double of Karpenter: a NodeClaim and a Node for each signal, and the end of nodes that stay empty.

It packs, moves and limits nothing. What it leaves in the API is what Karpenter left there, without Events and what only
Karpenter itself reads (tests/data/karpenter-traces.json). The unmodified Karpenter runs in tests/cluster/autoscaling.
"""

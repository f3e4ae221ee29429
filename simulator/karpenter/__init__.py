"""A fake of Karpenter: nodes for pods that no node takes, and their end once they are empty.

`karpenter_decision` and the modules below it are pure: what is known and the time, into writes. `fake_karpenter` reads and writes.
"""

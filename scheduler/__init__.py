"""The kube-scheduler extender: filter, prioritize, preempt and bind.

Decodes, decides and encodes; the only thing it awaits is the one-method port that binds.
No I/O and no clock.
"""

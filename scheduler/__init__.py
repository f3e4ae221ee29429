"""The kube-scheduler extender: filter, prioritize, preempt and bind.

Decodes, decides and encodes; the only thing it awaits is the port that binds and looks.
No I/O and no clock.
"""

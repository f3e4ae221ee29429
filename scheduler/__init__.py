"""The kube-scheduler extender: filter, prioritize, preempt and bind.

The verbs decode, decide and encode; they await only the port that binds and reads pods.
No I/O and no clock.
"""

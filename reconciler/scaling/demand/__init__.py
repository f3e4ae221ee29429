"""Waiting pods between two plans: batches of them, and nodes that kube-scheduler passed over for them."""

"""The control plane's own installation: its namespace, and its kube-scheduler."""

"""A kube-scheduler double and its extender client."""

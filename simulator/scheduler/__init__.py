"""A fake kube-scheduler and its extender client."""

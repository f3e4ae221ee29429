"""The file of `kubectl gpu dump`, and the cluster that it stands for."""

"""The command `simulate`: readers of clusters and workloads, and texts and pictures of results.

Questions are answered by the code that answers them in the server, on a copy of its state. Nothing here writes to a
cluster.
"""

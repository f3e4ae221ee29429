"""Workloads in time: their files, the clusters that place them, and reports."""

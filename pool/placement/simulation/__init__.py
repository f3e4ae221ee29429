"""Simulation of workloads on a cluster in virtual time; the readers of files for people are in `cli`."""

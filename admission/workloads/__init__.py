"""Admission of workloads: their pod templates, and who may have them ask for a pool."""

"""Projections of kinds that belong to others: the fields that are read, and no more."""

"""Projections of foreign kinds: only the fields that this project reads."""

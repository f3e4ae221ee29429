"""Placement of a demand on named devices of a node."""

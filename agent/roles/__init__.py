"""Roles of an agent process: each module puts the components of one role together."""

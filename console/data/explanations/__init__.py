"""Why pods wait, found out a little at a time."""

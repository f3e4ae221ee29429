"""The command `uninstall`: a table of what is ours, what of it is there, what goes in which order, and doing it."""

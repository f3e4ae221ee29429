"""Files between our own processes on a node."""

"""The part of CSI's messages that a node plugin needs, and the Python module that `make proto` generates from it."""

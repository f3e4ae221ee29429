"""The processes of the node that have the driver open: found by what they have open, told by their pods."""

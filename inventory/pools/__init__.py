"""Rules of pools that need no inventory: validity of the spec, and maintenance."""

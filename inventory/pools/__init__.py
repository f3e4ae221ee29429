"""Rules of pools that need no device: validity of the spec and maintenance."""

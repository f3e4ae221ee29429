"""Controllers of devices: health and state."""

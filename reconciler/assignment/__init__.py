"""Assignment of devices to pools: decision, status, Events and conflicts."""

"""The role detect: whether the node has a device, told where no node agent runs yet."""

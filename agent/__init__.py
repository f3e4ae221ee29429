"""What runs on a GPU node: the device plugin of a pool."""

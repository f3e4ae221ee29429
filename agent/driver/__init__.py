"""The driver port and the node's files beside it: PCI, libraries and device files."""

"""The registry of resources."""

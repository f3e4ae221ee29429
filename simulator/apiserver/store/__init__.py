"""The store: objects, lists, watches and selectors."""

"""The demo: the main job on an embedded in-memory cluster, narrated. Not in the shipped image."""

"""Writing objects: decoding, transitions, deletion, binding and eviction."""

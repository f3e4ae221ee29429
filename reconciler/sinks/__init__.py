"""Sinks of informers: watched objects into the allocation state and into stores."""

"""Streams of viewers: events made once for those with equal rights, and what waits for each of them."""

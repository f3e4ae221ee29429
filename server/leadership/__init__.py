"""Leadership: takeover, term object, and read of bound pods."""

"""Attacks on the application that is served: over real TLS, through the port as the process opens it."""

"""The server process: HTTP edge, leadership, and the wiring of the controllers."""

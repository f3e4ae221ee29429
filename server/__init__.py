"""The server process: what it answers on its port (`http`), leadership, and the wiring of the controllers."""

"""The command line: serve, agent, render and demo."""

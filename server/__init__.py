"""The process: HTTP application, command line, settings and wiring."""

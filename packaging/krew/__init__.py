"""Builds the archive of `kubectl gpu` and the manifest by which krew installs it."""

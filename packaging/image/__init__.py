"""Builds the container image as an OCI layout, without a container engine or a registry."""

"""The image builder: an OCI layout, without a container engine or a registry."""

"""Objects that make an autoscaler add nodes."""

"""What tests of NVIDIA's kinds share."""

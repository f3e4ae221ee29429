"""The kinds of NVIDIA's GPU Operator, as the API server serves them."""

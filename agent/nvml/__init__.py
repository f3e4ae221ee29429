"""The NVML driver: the library, its calls in worker threads, and conversion into the port's values."""

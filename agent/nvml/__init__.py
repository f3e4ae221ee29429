"""The NVML driver: the library, its calls in worker threads, and conversion into our values."""

"""Health of a device: faults, debouncing and DCGM samples."""

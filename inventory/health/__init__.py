"""Health of a device: faults, hysteresis and DCGM samples."""

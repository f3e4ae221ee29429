"""GPUDevice and GPUNodeInventory from node reports: decision, writes, status, Events and gauges."""

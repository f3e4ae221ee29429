"""Node readiness: bootstrap phases and conditions of GPUNodeInventory."""

"""Our kinds: GPUPool, GPUDevice, GPUNodeInventory and GPUControlPlaneTerm."""

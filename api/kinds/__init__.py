"""The kinds GPUPool, GPUDevice, GPUNodeInventory and GPUControlPlaneTerm."""

"""A device and a pool written by hand, for tests that need no inventory: the inventory leaves such devices alone."""

from typing import Any


def a_device(node: str, device: int, pool: str) -> dict[str, Any]:
    """Return a GPUDevice that is in its pool already."""
    address = f"0000:{0x17 + device:02x}:00.0"
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {
            "name": f"{node}-{address.replace(':', '-')}",
            "annotations": {"gpu.deckhouse.io/assignment": pool},
        },
        "status": {
            "nodeName": node,
            "inventoryID": f"{node}-{address}",
            "uuid": f"GPU-{node}-{device}",
            "product": "NVIDIA-H200",
            "memoryMiB": 143771,
            "pci": {"vendor": "10de", "device": "2335", "class": "0302", "address": address},
            "poolRef": {"name": pool},
        },
    }


def a_pool() -> dict[str, Any]:
    """Return the pool `whole`, of whole devices."""
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": "whole"},
        "spec": {
            "allocation": {"mode": "Exclusive"},
            "access": {"namespaces": ["default", "ml-team"]},
        },
    }

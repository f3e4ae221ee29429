"""Devices in no pool that a pool could take, and what keeps each of them out."""

from typing import TYPE_CHECKING

from api.names import ASSIGNMENT_ANNOTATION, NodeName
from inventory.assignment.eligibility import (
    exclusion_obstacles,
    incomplete,
    is_approved,
    node_selector_obstacles,
    selector_obstacles,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool


def could_join(device: "GPUDevice", pool: "GPUPool") -> bool:
    """Say whether the device is of a kind that the pool takes, and healthy."""
    return not (
        device.is_faulted or any(incomplete(device)) or any(selector_obstacles(pool, device))
    )


def joining_obstacle(device: "GPUDevice", pool: "GPUPool", labels: "Mapping[str, str]") -> str:
    """Return the first thing that keeps a device out of a pool that could take it, with the cure.

    Args:
        device: in no pool.
        pool: that could take it.
        labels: of the device's node.
    """
    obstacles = (
        *exclusion_obstacles(device),
        *node_selector_obstacles(pool, NodeName(device.node), labels),
    )
    if obstacles:
        return obstacles[0].text
    if device.assignment not in {None, pool.name}:
        return f"annotation {ASSIGNMENT_ANNOTATION} gives it to pool {device.assignment}"
    if device.assignment is None and not is_approved(pool, device):
        return f"annotate each with {ASSIGNMENT_ANNOTATION}={pool.name}"
    return "the pool selects it, and does not have it yet: `kubectl describe gpudevice` says why"

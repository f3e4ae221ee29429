"""An operator's decision on a device, as a PATCH of its metadata: the device joins a pool, leaves it, or stays out of all.

`kubectl gpu` and the console write it with the rights of their user. The rules are those of the control plane's admission;
refused here is what admission lets through on purpose, such as the approval of a device of another pool.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import msgspec

from api.names import ASSIGNMENT_ANNOTATION, IGNORE_LABEL
from api.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.meta import Condition


@final
@dataclass(frozen=True, slots=True)
class DevicePatch:
    """Metadata of a device to merge, and what it brings about."""

    device: str
    metadata: dict[str, dict[str, str | None]]
    text: str

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"metadata": self.metadata})


def approval(
    device: "GPUDevice",
    pool: str,
    candidates: "Sequence[str]" = (),
    *,
    assigned: "Condition | None" = None,
) -> DevicePatch | str:
    """Return the change by which a device joins a pool, or why there is none.

    Args:
        device: the device.
        pool: that the user named; empty where the only candidate is meant.
        candidates: pools that the device may join by a decision; not asked for where a pool is named.
        assigned: condition Assigned of the device, for the refusal of a device without candidates.
    """
    ref = device.status.pool_ref
    if ref is not None and ref.name == pool:
        return f"it is in pool {pool} already"
    if ref is not None:
        to = pool or "POOL"
        return f"it is in pool {ref.name}{_use(device)}: `kubectl gpu move {device.name} {to}`"
    if not pool and len(candidates) > 1:
        return f"pools {listed(candidates)} select it: name one of them behind it"
    if not pool and not candidates:
        why = assigned.message if assigned is not None else "no pool was matched yet"
        return f"it waits for no decision: {why}"
    name = pool or candidates[0]
    metadata: dict[str, dict[str, str | None]] = {"annotations": {ASSIGNMENT_ANNOTATION: name}}
    if device.is_ignored:
        metadata["labels"] = {IGNORE_LABEL: None}
    return DevicePatch(device.name, metadata, f"approved for pool {name}")


def move(device: "GPUDevice", pool: str) -> DevicePatch | str:
    """Return the change by which a device of one pool comes into another one, or why there is none."""
    ref = device.status.pool_ref
    if ref is None:
        return f"it is in no pool: `kubectl gpu approve {device.name} {pool}`"
    if ref.name == pool:
        return f"it is in pool {pool} already"
    text = f"leaves pool {ref.name} once no pod uses it{_use(device)}, and joins pool {pool}"
    return DevicePatch(device.name, {"annotations": {ASSIGNMENT_ANNOTATION: pool}}, text)


def release(device: "GPUDevice") -> DevicePatch | str:
    """Return the change by which a device loses its approval, or why there is none."""
    if device.assignment is None:
        ref = device.status.pool_ref
        if ref is None:
            return "it has no approval"
        return f"pool {ref.name} takes it without approval: `kubectl gpu drain {device.name}` keeps it out"
    text = f"no longer approved for pool {device.assignment}{_leaving(device)}"
    return DevicePatch(device.name, {"annotations": {ASSIGNMENT_ANNOTATION: None}}, text)


def drain(device: "GPUDevice") -> DevicePatch | str:
    """Return the change by which a device leaves its pool and joins none, or why there is none."""
    if device.is_ignored:
        return f"it is out of all pools already: `kubectl gpu approve {device.name} POOL` ends that"
    text = f"kept out of all pools{_leaving(device)}"
    return DevicePatch(device.name, {"labels": {IGNORE_LABEL: "true"}}, text)


def _leaving(device: "GPUDevice") -> str:
    ref = device.status.pool_ref
    return f": leaves pool {ref.name} once no pod uses it{_use(device)}" if ref is not None else ""


def _use(device: "GPUDevice") -> str:
    units = device.status.units
    used = units.allocated + units.reserved
    return f" ({used} of {units.capacity} units are in use)" if used else ""


def pools_by_device(inventory: "GPUNodeInventory") -> dict[str, list[str]]:
    """Return device -> pools that it may join by a decision, as the leader last wrote them."""
    found: dict[str, list[str]] = {}
    for entry in inventory.status.pools.candidates or ():
        for device in entry.devices:
            found.setdefault(device, []).append(entry.pool)
    return found

"""The inventory of a node as a whole: completeness, versions, opt-out."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus
from api.kinds.gpunodeinventory import DriverVersions, NodeSystem
from api.meta import SelectorOperator, SelectorRequirement
from api.names import MANAGED_LABEL
from api.text import listed as listing
from inventory.discovery.merge import MergedReport
from inventory.discovery.plan import DevicePlan, RejectedDevice, is_ours

FRESH_FOR: Final = dt.timedelta(minutes=2)
"""Age of a node agent's heartbeat, of one a minute: an older one means silence, and its facts and reports are ignored."""
_OPT_OUT_VALUES: Final = ("false", "False", "FALSE")
"""Node affinities compare case by case."""
DEFAULT_GONE_FOR: Final = dt.timedelta(minutes=1)
"""Longer than the 40 s after which kube-controller-manager deletes the pods of a Node that is gone."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryParameters:
    """Settings of the inventory."""

    managed_label: str = MANAGED_LABEL
    """On a Node: `false` keeps its devices out of every pool, and what examines them off the node."""
    is_managed_by_default: bool = True
    """Whether a node without the label is managed."""
    gone_for: dt.timedelta = DEFAULT_GONE_FOR
    """How long a Node must be gone before its devices are deleted."""


class IncompleteReason(Enum):
    """Why an inventory is incomplete; the first that applies, in this order."""

    CLAIMED = "claimed"
    """A device reports the UUID of another GPUDevice."""
    SOURCE = "source"
    """A label says that there are devices, and no source lists them."""
    ADDRESSES = "addresses"
    """Labels number devices whose PCI address no source reports."""
    DEVICES = "devices"
    """NFD finds more devices than there are GPUDevices."""
    UUIDS = "uuids"
    """A GPUDevice has no UUID yet, so it cannot be allocated."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteInventory:
    """Why a node's inventory is incomplete, with the text for the condition."""

    reason: IncompleteReason
    message: str


def on_managed_nodes(parameters: InventoryParameters) -> tuple[SelectorRequirement, ...]:
    """Return the expressions that a managed node satisfies, and no other."""
    key = parameters.managed_label
    kept_out = SelectorRequirement(
        key=key, operator=SelectorOperator.NOT_IN, values=list(_OPT_OUT_VALUES)
    )
    if parameters.is_managed_by_default:
        return (kept_out,)
    return (SelectorRequirement(key=key, operator=SelectorOperator.EXISTS), kept_out)


def is_managed(labels: Mapping[str, str], parameters: InventoryParameters) -> bool:
    """Whether the node's devices may be in pools."""
    return all(item.matches(labels) for item in on_managed_nodes(parameters))


def passed_through(merged: MergedReport, devices: Sequence[GPUDeviceStatus]) -> tuple[str, ...]:
    """Return the devices that are bound to a VFIO driver."""
    return tuple(
        device.inventory_id for device in devices if merged.is_passed_through(device.pci.address)
    )


def incompleteness_of(
    merged: MergedReport, devices: Sequence[GPUDeviceStatus], refused: Sequence[RejectedDevice] = ()
) -> IncompleteInventory | None:
    """Return why the inventory of a node is incomplete; None for a complete one.

    A GPUDevice is created once its PCI address is known, and not before: the number that a label gives a device
    changes when another device is pulled, so it identifies no device.
    """
    if refused:
        claims = listing(f"{item.uuid} at {item.address} (of {item.owner})" for item in refused)
        message = (
            f"reported UUIDs belong to other GPUDevices and are ignored: {claims};"
            " if a device was moved to this node, delete the GPUDevice of its old place"
        )
        return IncompleteInventory(reason=IncompleteReason.CLAIMED, message=message)
    count = len(devices)
    expected = max(merged.expected or 0, len(merged.slots))
    cure = "run the node agent, or another source of NodeFeatures with PCI addresses, on the node"
    if not devices and merged.slots:
        numbers = listing(f"device.{number:02d}" for number in merged.slots)
        message = f"labels number {numbers}, and no source reports their PCI addresses: {cure}"
        return IncompleteInventory(reason=IncompleteReason.ADDRESSES, message=message)
    if not devices and (expected or merged.has_devices):
        message = f"the node has an NVIDIA device, and no source reports its PCI address: {cure}"
        return IncompleteInventory(reason=IncompleteReason.SOURCE, message=message)
    if count < expected:
        message = (
            f"{expected} devices are on the bus, and {count} of them are known:"
            " see the driver's log on the node"
        )
        return IncompleteInventory(reason=IncompleteReason.DEVICES, message=message)
    foreign = passed_through(merged, devices)
    nameless = [
        device.inventory_id
        for device in devices
        if not device.uuid and device.inventory_id not in foreign
    ]
    if nameless:
        message = f"no UUID is known of {listing(nameless)}: install or load the driver on the node"
        return IncompleteInventory(reason=IncompleteReason.UUIDS, message=message)
    return None


def versions_of(merged: MergedReport, current: DriverVersions) -> DriverVersions:
    """Return the versions of the node's software; a version that no source reports keeps its last value."""
    reported = merged.versions
    return DriverVersions(
        version=reported.driver or current.version,
        cuda_version=reported.cuda or current.cuda_version,
        toolkit_version=reported.toolkit or current.toolkit_version,
    )


def system_of(merged: MergedReport, current: NodeSystem, *, kernel: str) -> NodeSystem:
    """Return kernel and operating system of the node; what no source reports keeps its last value.

    `kernel` is what kubelet says, which is the running one; labels may be of the last start.
    """
    reported = merged.system
    system = reported if reported.os else current
    return NodeSystem(
        kernel=kernel or reported.kernel or current.kernel,
        os=system.os,
        os_version=system.os_version,
    )


def has_inventory(
    merged: MergedReport, devices: Sequence[GPUDevice], plan: DevicePlan, *, is_visible: bool
) -> bool:
    """Whether the node has an inventory: an existing one stays, and a node without devices gets none.

    GPUDevices that were created by hand do not count.
    """
    return (
        is_visible
        or merged.has_devices
        or bool(merged.bad)
        or bool(plan.create)
        or any(is_ours(device) for device in devices)
    )

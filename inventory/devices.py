"""Which GPUDevices a node should have: those to make, to keep, and to take away.

A device goes only when a fresh source that lists all cards of the node does not list its card, or lists
another one in its place. Devices without the inventory's label were made by hand: they are left alone, and
their cards with them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import final

import msgspec

from api.gpudevice import GPUDevice, GPUDeviceStatus
from api.meta import Condition
from api.names import DEVICE_NODE_LABEL, DeviceName, NodeName
from api.text import listed as listing
from inventory.identity import canonical_address, device_name, inventory_id
from inventory.merging import Sighting
from inventory.settling import present_uuid, settle


class Gone(Enum):
    """Why a device is taken away."""

    PULLED = "the card is not there any more"
    SWAPPED = "another card sits in its place"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """Whether what a device shows is told by a fresh source."""

    is_stale: bool
    message: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDevice:
    """A device as it should be."""

    name: DeviceName
    status: GPUDeviceStatus
    """The inventory's fields of it; conditions apart."""
    staleness: Staleness


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """What is to be done about the devices of a node."""

    delete: tuple[tuple[GPUDevice, Gone], ...] = ()
    create: tuple[WantedDevice, ...] = ()
    keep: tuple[tuple[GPUDevice, WantedDevice], ...] = ()


def is_ours(device: GPUDevice) -> bool:
    """Say whether the inventory made the device."""
    return device.metadata.label(DEVICE_NODE_LABEL) is not None


def addresses_of(devices: Sequence[GPUDevice]) -> frozenset[str]:
    """Return the addresses of the cards that the inventory knows."""
    return frozenset(one.status.pci.address for one in devices if is_ours(one)) - {""}


def plan_devices(
    node: NodeName, devices: Sequence[GPUDevice], sighting: Sighting, *, is_managed: bool
) -> DevicePlan:
    """Return what makes the node's devices those that its sources tell of."""
    by_hand = [one for one in devices if not is_ours(one)]
    ours = {one.name: one for one in devices if is_ours(one)}
    addresses = {
        device_name(node, address): address
        for address in sighting.said
        if not _is_taken(node, address, by_hand, uuid=present_uuid(sighting.said[address]))
    }
    delete: list[tuple[GPUDevice, Gone]] = []
    create: list[WantedDevice] = []
    keep: list[tuple[GPUDevice, WantedDevice]] = []
    for name in sorted({*addresses, *ours}):
        device, address = ours.get(name), addresses.get(name)
        is_listed = address in sighting.listed
        if device is not None and not is_listed and sighting.is_whole:
            delete.append((device, Gone.PULLED))
            continue
        if address is None or (device is None and not is_listed):
            continue
        if device is not None and _is_swapped(device, address, sighting):
            delete.append((device, Gone.SWAPPED))
            device = None
        settled = settle(
            device.status if device is not None else GPUDeviceStatus(),
            sighting.said[address],
            node=node,
            address=address,
            withheld=sighting.withheld,
        )
        wanted = WantedDevice(
            name=name,
            status=msgspec.structs.replace(settled.status, managed=is_managed),
            staleness=_staleness(settled.untold, is_listed=is_listed),
        )
        if device is None:
            create.append(wanted)
        else:
            keep.append((device, wanted))
    return DevicePlan(delete=tuple(delete), create=tuple(create), keep=tuple(keep))


def _is_taken(node: NodeName, address: str, by_hand: Sequence[GPUDevice], *, uuid: str) -> bool:
    """Say whether somebody made a device for this card by hand."""
    return any(
        one.name == device_name(node, address)
        or canonical_address(one.status.pci.address) == address
        or one.status.inventory_id.lower() == inventory_id(node, address)
        or (uuid != "" and one.status.uuid == uuid)
        for one in by_hand
    )


def _is_swapped(device: GPUDevice, address: str, sighting: Sighting) -> bool:
    if not device.status.uuid or address not in sighting.listed:
        return False
    fresh = [one for one in sighting.said[address] if one.is_fresh]
    return present_uuid(fresh) not in {"", device.status.uuid}


def _staleness(untold: Collection[str], *, is_listed: bool) -> Staleness:
    if not is_listed:
        message = (
            "no source lists the card now, and none that would know says that it is gone:"
            " what was said last stands"
        )
        return Staleness(is_stale=True, message=message)
    if untold:
        message = f"no source tells {listing(untold)} any more: what was said last stands"
        return Staleness(is_stale=True, message=message)
    return Staleness(is_stale=False, message="")


def own_status(wanted: WantedDevice, conditions: Sequence[Condition]) -> Mapping[str, object]:
    """Return the inventory's part of the status as it is applied, with every field that has a value."""
    status = wanted.status
    body: dict[str, object] = {
        "nodeName": status.node_name,
        "inventoryID": status.inventory_id,
        "managed": status.managed,
        "pci": status.pci,
        "mig": status.mig,
        "conditions": list(conditions),
    }
    optional = {
        "uuid": status.uuid,
        "product": status.product,
        "memoryMiB": status.memory_mib,
        "computeCapability": status.compute_capability,
        "links": status.links,
    }
    body |= {key: value for key, value in optional.items() if value}
    if status.numa_node is not None:
        body["numaNode"] = status.numa_node
    return body


def shows(status: GPUDeviceStatus, wanted: GPUDeviceStatus) -> bool:
    """Say whether the inventory's fields of a status are as wanted."""
    ours = msgspec.structs.replace(
        wanted,
        state=status.state,
        pool_ref=status.pool_ref,
        units=status.units,
        conditions=status.conditions,
        links=wanted.links or None,
    )
    return ours == msgspec.structs.replace(status, links=status.links or None)

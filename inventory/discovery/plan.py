"""Plan of a node's GPUDevices: those to create, to keep, and to delete.

A GPUDevice is deleted only when a fresh source that lists all devices of the node does not list it, or lists
another device in its place. GPUDevices without the inventory's label were created by hand: they are left
alone, and so are their devices.

A UUID stays with the GPUDevice that showed it first: a node that reports the UUID of another GPUDevice does
not get it, or every node could take the devices of all others out of their pools. A device that was moved
gets its GPUDevice once that of its old place is deleted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

import msgspec

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus
from api.meta import Condition
from api.names import DEVICE_NODE_LABEL, DeviceName, NodeName
from api.text import listed as listing
from inventory.discovery.merge import MergedReport
from inventory.discovery.resolve import present_uuid, resolve_facts
from inventory.identity import canonical_address, device_name, inventory_id

_OF_OTHERS: Final = ("state", "pool_ref", "units", "repair", "last_xid", "conditions")
"""Fields of the status that other controllers write."""
_ALWAYS: Final = frozenset({"node_name", "inventory_id", "managed", "pci", "mig"})
"""Fields that are written whatever their value."""


class MissingDevice(Enum):
    """Why a GPUDevice is deleted."""

    PULLED = "the device is gone from the node"
    SWAPPED = "another device is in its place"
    CLAIMED = "another GPUDevice had its UUID first"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """Whether a fresh source confirms what a GPUDevice shows."""

    is_stale: bool
    message: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredDevice:
    """The desired GPUDevice."""

    name: DeviceName
    status: GPUDeviceStatus
    """The inventory's fields, without conditions."""
    staleness: Staleness


@final
@dataclass(frozen=True, slots=True, order=True)
class RejectedDevice:
    """A UUID that a node reports, and another GPUDevice has."""

    address: str
    """Address of the node's device."""
    uuid: str
    owner: DeviceName


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """Changes of a node's GPUDevices."""

    delete: tuple[tuple[GPUDevice, MissingDevice], ...] = ()
    create: tuple[DesiredDevice, ...] = ()
    keep: tuple[tuple[GPUDevice, DesiredDevice], ...] = ()
    refused: tuple[RejectedDevice, ...] = ()


def is_ours(device: GPUDevice) -> bool:
    """Whether the inventory created the GPUDevice."""
    return device.metadata.label(DEVICE_NODE_LABEL) is not None


def addresses_of(devices: Sequence[GPUDevice]) -> frozenset[str]:
    """Return the addresses of the devices that the inventory has created."""
    return frozenset(device.status.pci.address for device in devices if is_ours(device)) - {""}


def uuids_of(devices: Sequence[GPUDevice], merged: MergedReport) -> frozenset[str]:
    """Return the UUIDs of devices and MIG instances that a node's GPUDevices show or its sources report."""
    facts = [report.facts for reports in merged.by_address.values() for report in reports]
    reported = (fact.uuid or "" for fact in facts)
    instances = (instance.uuid for fact in facts for instance in fact.mig_instances or ())
    current = (uuid for device in devices for uuid in _uuids(device.status))
    return frozenset({*reported, *instances, *current}) - {""}


def plan_inventory(
    node: NodeName,
    devices: Sequence[GPUDevice],
    merged: MergedReport,
    *,
    is_managed: bool,
    claimants: Mapping[str, Sequence[DeviceName]] | None = None,
) -> DevicePlan:
    """Return the changes that make the node's GPUDevices match the reports.

    Args:
        node: its name.
        devices: its GPUDevices.
        merged: the reports of its sources.
        is_managed: whether its devices may be in pools; those that a virtual machine has may not.
        claimants: the GPUDevices of all nodes that show each of `uuids_of`, the owner first.
    """
    by_hand = [item for item in devices if not is_ours(item)]
    ours = {item.name: item for item in devices if is_ours(item)}
    addresses = {
        device_name(node, address): address
        for address in merged.by_address
        if not _is_taken(node, address, by_hand, uuid=present_uuid(merged.by_address[address]))
    }
    leaving: dict[DeviceName, MissingDevice] = {}
    for name, device in ours.items():
        why = _why_gone(device, addresses.get(name), merged)
        if why is not None:
            leaving[name] = why
    uuids = _UuidOwners(claimants or {}, leaving)
    for name, device in ours.items():
        is_listed = addresses.get(name) in merged.listed
        if name not in leaving and uuids.is_duplicate(device, is_listed=is_listed):
            leaving[name] = MissingDevice.CLAIMED
    create: list[DesiredDevice] = []
    keep: list[tuple[GPUDevice, DesiredDevice]] = []
    for name, address in sorted(addresses.items()):
        is_listed = address in merged.listed
        kept = ours.get(name) if name not in leaving else None
        if kept is None and not is_listed:
            continue
        current = kept.status if kept is not None else GPUDeviceStatus()
        resolved = resolve_facts(
            current,
            merged.by_address[address],
            node=node,
            address=address,
            withheld=merged.withheld,
        )
        status = uuids.without_others(name, resolved.status, current=current)
        desired = DesiredDevice(
            name=name,
            status=msgspec.structs.replace(
                status, managed=is_managed and not merged.is_passed_through(address)
            ),
            staleness=_staleness(resolved.unreported, is_listed=is_listed),
        )
        if kept is not None:
            keep.append((kept, desired))
        elif status.uuid == resolved.status.uuid:
            create.append(desired)
    return DevicePlan(
        delete=tuple((ours[name], why) for name, why in sorted(leaving.items())),
        create=tuple(create),
        keep=tuple(keep),
        refused=tuple(sorted(uuids.refused)),
    )


@final
class _UuidOwners:
    """Ownership of UUIDs, and the UUIDs rejected because another GPUDevice owns them."""

    def __init__(
        self,
        claimants: Mapping[str, Sequence[DeviceName]],
        leaving: Collection[DeviceName],
    ) -> None:
        self._claimants = claimants
        self._leaving = leaving
        self._planned: dict[str, DeviceName] = {}
        self.refused: set[RejectedDevice] = set()

    def is_duplicate(self, device: GPUDevice, *, is_listed: bool) -> bool:
        """Whether a GPUDevice is deleted because it shows another one's UUID; one in a pool stays while it is listed."""
        is_kept = is_listed and device.status.pool_ref is not None
        return not is_kept and self._owner(device.status.uuid) not in {None, device.name}

    def without_others(
        self, name: DeviceName, status: GPUDeviceStatus, *, current: GPUDeviceStatus
    ) -> GPUDeviceStatus:
        """Return the status without UUIDs of other GPUDevices; the device's own known UUID stays."""
        taken = set()
        for uuid in _uuids(status):
            owner = self._owner(uuid) or self._planned.setdefault(uuid, name)
            if owner != name and uuid != current.uuid:
                taken.add(uuid)
                self.refused.add(RejectedDevice(status.pci.address, uuid, owner))
        if not taken:
            return status
        instances = [
            instance for instance in status.mig.instances or () if instance.uuid not in taken
        ]
        return msgspec.structs.replace(
            status,
            uuid="" if status.uuid in taken else status.uuid,
            mig=msgspec.structs.replace(status.mig, instances=instances or None),
        )

    def _owner(self, uuid: str) -> DeviceName | None:
        """Return the GPUDevice that owns a UUID now; None for a free one."""
        claiming = self._claimants.get(uuid, ())
        return next((item for item in claiming if item not in self._leaving), None)


def _uuids(status: GPUDeviceStatus) -> Iterator[str]:
    yield from filter(
        None, (status.uuid, *(instance.uuid for instance in status.mig.instances or ()))
    )


def _why_gone(device: GPUDevice, address: str | None, merged: MergedReport) -> MissingDevice | None:
    """Return why a device is no longer in its place; None where it may be."""
    if address not in merged.listed and merged.is_whole:
        return MissingDevice.PULLED
    if address is not None and _is_swapped(device, address, merged):
        return MissingDevice.SWAPPED
    return None


def _is_taken(node: NodeName, address: str, by_hand: Sequence[GPUDevice], *, uuid: str) -> bool:
    """Whether a GPUDevice for this address was created by hand."""
    return any(
        item.name == device_name(node, address)
        or canonical_address(item.status.pci.address) == address
        or item.status.inventory_id.lower() == inventory_id(node, address)
        or (uuid != "" and item.status.uuid == uuid)
        for item in by_hand
    )


def _is_swapped(device: GPUDevice, address: str, merged: MergedReport) -> bool:
    if not device.status.uuid or address not in merged.listed:
        return False
    fresh = [item for item in merged.by_address[address] if item.is_fresh]
    return present_uuid(fresh) not in {"", device.status.uuid}


def _staleness(unreported: Collection[str], *, is_listed: bool) -> Staleness:
    if not is_listed:
        message = (
            "no source lists the device, and no complete list proves that it is gone:"
            " the last reported values stay"
        )
        return Staleness(is_stale=True, message=message)
    if unreported:
        message = f"no source reports {listing(unreported)} any more: the last reported values stay"
        return Staleness(is_stale=True, message=message)
    return Staleness(is_stale=False, message="")


def own_status(desired: DesiredDevice, conditions: Sequence[Condition]) -> Mapping[str, object]:
    """Return the inventory's part of the status as it is applied, with every field that has a value."""
    status = desired.status
    own = {
        field.encode_name: value
        for field in msgspec.structs.fields(status)
        if field.name not in _OF_OTHERS
        and ((value := getattr(status, field.name)) != field.default or field.name in _ALWAYS)
    }
    return own | {"conditions": list(conditions)}


def device_shows(status: GPUDeviceStatus, desired: GPUDeviceStatus) -> bool:
    """Whether the inventory's fields of a status are as wanted."""
    theirs = {name: getattr(status, name) for name in _OF_OTHERS}
    ours = msgspec.structs.replace(desired, **theirs, links=desired.links or None)
    return ours == msgspec.structs.replace(status, links=status.links or None)

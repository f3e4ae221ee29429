"""Which GPUDevices a node should have: those to make, to keep, and to take away.

A device goes only when a fresh source that lists all cards of the node does not list its card, or lists
another one in its place. Devices without the inventory's label were made by hand: they are left alone, and
their cards with them.

A UUID stays with the device that showed it first: a node that tells of one that another device shows gets
nothing of it, or every node could take all others' cards out of their pools. A card that was moved gets its
device once that of its old place is gone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import final

import msgspec

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus
from api.meta import Condition
from api.names import DEVICE_NODE_LABEL, DeviceName, NodeName
from api.text import listed as listing
from inventory.discovery.merge import Sighting
from inventory.discovery.resolve import present_uuid, resolve_facts
from inventory.identity import canonical_address, device_name, inventory_id


class MissingDevice(Enum):
    """Why a device is taken away."""

    PULLED = "the card is not there any more"
    SWAPPED = "another card sits in its place"
    CLAIMED = "another device had its UUID first"


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
@dataclass(frozen=True, slots=True, order=True)
class RejectedDevice:
    """A UUID that a node tells of, and another device shows."""

    address: str
    """Of the node's card."""
    uuid: str
    owner: DeviceName


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """What is to be done about the devices of a node."""

    delete: tuple[tuple[GPUDevice, MissingDevice], ...] = ()
    create: tuple[WantedDevice, ...] = ()
    keep: tuple[tuple[GPUDevice, WantedDevice], ...] = ()
    refused: tuple[RejectedDevice, ...] = ()


def is_ours(device: GPUDevice) -> bool:
    """Say whether the inventory made the device."""
    return device.metadata.label(DEVICE_NODE_LABEL) is not None


def addresses_of(devices: Sequence[GPUDevice]) -> frozenset[str]:
    """Return the addresses of the cards that the inventory knows."""
    return frozenset(one.status.pci.address for one in devices if is_ours(one)) - {""}


def uuids_of(devices: Sequence[GPUDevice], sighting: Sighting) -> frozenset[str]:
    """Return the UUIDs of cards and MIG instances that a node shows, or that its sources tell of."""
    facts = [one.facts for statements in sighting.said.values() for one in statements]
    told = (one.uuid or "" for one in facts)
    instances = (each.uuid for one in facts for each in one.mig_instances or ())
    shown = (uuid for one in devices for uuid in _uuids(one.status))
    return frozenset({*told, *instances, *shown}) - {""}


def plan_inventory(
    node: NodeName,
    devices: Sequence[GPUDevice],
    sighting: Sighting,
    *,
    is_managed: bool,
    claimants: Mapping[str, Sequence[DeviceName]] | None = None,
) -> DevicePlan:
    """Return what makes the node's devices those that its sources tell of.

    Args:
        node: its name.
        devices: what it has.
        sighting: what its sources tell.
        is_managed: whether its devices may be in pools.
        claimants: the devices of all nodes that show each of `uuids_of`, the one that has it first.
    """
    by_hand = [one for one in devices if not is_ours(one)]
    ours = {one.name: one for one in devices if is_ours(one)}
    addresses = {
        device_name(node, address): address
        for address in sighting.said
        if not _is_taken(node, address, by_hand, uuid=present_uuid(sighting.said[address]))
    }
    leaving: dict[DeviceName, MissingDevice] = {}
    for name, device in ours.items():
        why = _why_gone(device, addresses.get(name), sighting)
        if why is not None:
            leaving[name] = why
    uuids = _Uuids(claimants or {}, leaving)
    for name, device in ours.items():
        is_listed = addresses.get(name) in sighting.listed
        if name not in leaving and uuids.is_spare(device, is_listed=is_listed):
            leaving[name] = MissingDevice.CLAIMED
    create: list[WantedDevice] = []
    keep: list[tuple[GPUDevice, WantedDevice]] = []
    for name, address in sorted(addresses.items()):
        is_listed = address in sighting.listed
        kept = ours.get(name) if name not in leaving else None
        if kept is None and not is_listed:
            continue
        known = kept.status if kept is not None else GPUDeviceStatus()
        settled = resolve_facts(
            known,
            sighting.said[address],
            node=node,
            address=address,
            withheld=sighting.withheld,
        )
        status = uuids.without_others(name, settled.status, known=known)
        wanted = WantedDevice(
            name=name,
            status=msgspec.structs.replace(status, managed=is_managed),
            staleness=_staleness(settled.untold, is_listed=is_listed),
        )
        if kept is not None:
            keep.append((kept, wanted))
        elif status.uuid == settled.status.uuid:
            create.append(wanted)
    return DevicePlan(
        delete=tuple((ours[name], why) for name, why in sorted(leaving.items())),
        create=tuple(create),
        keep=tuple(keep),
        refused=tuple(sorted(uuids.refused)),
    )


@final
class _Uuids:
    """Tells which UUIDs devices of the node may show, and notes those that they may not."""

    def __init__(
        self,
        claimants: Mapping[str, Sequence[DeviceName]],
        leaving: Collection[DeviceName],
    ) -> None:
        self._claimants = claimants
        self._leaving = leaving
        self._planned: dict[str, DeviceName] = {}
        self.refused: set[RejectedDevice] = set()

    def is_spare(self, device: GPUDevice, *, is_listed: bool) -> bool:
        """Say whether a device goes that shows another one's UUID; one in a pool stays while it is told of."""
        is_kept = is_listed and device.status.pool_ref is not None
        return not is_kept and self._owner(device.status.uuid) not in {None, device.name}

    def without_others(
        self, name: DeviceName, status: GPUDeviceStatus, *, known: GPUDeviceStatus
    ) -> GPUDeviceStatus:
        """Return the status without UUIDs of other devices; a card's own UUID that is known stays."""
        taken = set()
        for uuid in _uuids(status):
            owner = self._owner(uuid) or self._planned.setdefault(uuid, name)
            if owner != name and uuid != known.uuid:
                taken.add(uuid)
                self.refused.add(RejectedDevice(status.pci.address, uuid, owner))
        if not taken:
            return status
        instances = [one for one in status.mig.instances or () if one.uuid not in taken]
        return msgspec.structs.replace(
            status,
            uuid="" if status.uuid in taken else status.uuid,
            mig=msgspec.structs.replace(status.mig, instances=instances or None),
        )

    def _owner(self, uuid: str) -> DeviceName | None:
        """Return the device that has a UUID now; None where it is free."""
        claiming = self._claimants.get(uuid, ())
        return next((one for one in claiming if one not in self._leaving), None)


def _uuids(status: GPUDeviceStatus) -> Iterator[str]:
    yield from filter(None, (status.uuid, *(one.uuid for one in status.mig.instances or ())))


def _why_gone(device: GPUDevice, address: str | None, sighting: Sighting) -> MissingDevice | None:
    """Return why the card of a device is not where it was; None where it may be."""
    if address not in sighting.listed and sighting.is_whole:
        return MissingDevice.PULLED
    if address is not None and _is_swapped(device, address, sighting):
        return MissingDevice.SWAPPED
    return None


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


def device_shows(status: GPUDeviceStatus, wanted: GPUDeviceStatus) -> bool:
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

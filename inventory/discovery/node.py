"""What the inventory says of a node as a whole."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus
from api.kinds.gpunodeinventory import DriverVersions
from api.names import MANAGED_LABEL
from api.text import listed as listing
from inventory.discovery.merge import Sighting
from inventory.discovery.plan import DevicePlan, RejectedDevice, is_ours

DEFAULT_FRESH_FOR: Final = dt.timedelta(minutes=2)
DEFAULT_GONE_FOR: Final = dt.timedelta(minutes=1)
"""Longer than the 40 s after which kube-controller-manager deletes the pods of a Node that is gone."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryTerms:
    """What an operator decides about the inventory."""

    managed_label: str = MANAGED_LABEL
    """On a Node: `false` keeps its devices out of every pool."""
    is_managed_by_default: bool = True
    """Whether a node without the label is managed."""
    fresh_for: dt.timedelta = DEFAULT_FRESH_FOR
    """How old the heartbeat of a node agent may be."""
    gone_for: dt.timedelta = DEFAULT_GONE_FOR
    """How long a Node must be gone before its devices are deleted."""


class Lacking(Enum):
    """What an inventory lacks to be complete; the first that applies, in this order."""

    CLAIMED = "claimed"
    """A card tells a UUID that another device has."""
    SOURCE = "source"
    """NFD finds cards, and nobody tells which."""
    ADDRESSES = "addresses"
    """Labels number cards of which no source tells the PCI address."""
    DEVICES = "cards"
    """NFD finds more cards than there are devices."""
    UUIDS = "uuids"
    """A device has no UUID yet: nothing can be given out of it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Why a node's inventory is not complete, for people."""

    what: Lacking
    message: str


def is_managed(labels: Mapping[str, str], terms: InventoryTerms) -> bool:
    """Say whether the node's devices may be in pools."""
    value = labels.get(terms.managed_label)
    return terms.is_managed_by_default if value is None else value.lower() != "false"


def lack_of(
    sighting: Sighting, devices: Sequence[GPUDeviceStatus], refused: Sequence[RejectedDevice] = ()
) -> Lack | None:
    """Return what the inventory of a node lacks; None where it is complete.

    A device is made once its PCI address is known, and not before: the number that a label gives a card
    moves when another card is pulled, so that it tells nobody who the card is.
    """
    if refused:
        claims = listing(f"{one.uuid} at {one.address} (of {one.owner})" for one in refused)
        message = (
            f"UUIDs of other devices are told, and not believed: {claims};"
            " if a card was moved here, delete the device of its old place"
        )
        return Lack(what=Lacking.CLAIMED, message=message)
    count = len(devices)
    expected = max(sighting.expected or 0, len(sighting.slots))
    cure = "the node agent, or another source of NodeFeatures with PCI addresses, must run there"
    if not devices and sighting.slots:
        numbers = listing(f"device.{number:02d}" for number in sighting.slots)
        message = f"labels number {numbers}, and no source tells their PCI addresses: {cure}"
        return Lack(what=Lacking.ADDRESSES, message=message)
    if not devices and (expected or sighting.has_devices):
        message = f"there is a card of NVIDIA, and no source tells which: {cure}"
        return Lack(what=Lacking.SOURCE, message=message)
    if count < expected:
        message = (
            f"{expected} cards are found on the bus, and {count} of them known:"
            " look at the driver's log of that node"
        )
        return Lack(what=Lacking.DEVICES, message=message)
    nameless = [one.inventory_id for one in devices if not one.uuid]
    if nameless:
        message = f"no UUID is known of {listing(nameless)}: a driver must run there"
        return Lack(what=Lacking.UUIDS, message=message)
    return None


def versions_of(sighting: Sighting, known: DriverVersions) -> DriverVersions:
    """Return the versions of the node's software; what nobody tells any more keeps its last value."""
    said = sighting.versions
    return DriverVersions(
        version=said.driver or known.version,
        cuda_version=said.cuda or known.cuda_version,
        toolkit_version=said.toolkit or known.toolkit_version,
    )


def has_inventory(
    sighting: Sighting, devices: Sequence[GPUDevice], plan: DevicePlan, *, is_shown: bool
) -> bool:
    """Say whether the node has an inventory: one that has it keeps it, a node without cards gets none.

    Devices that somebody made by hand make none either.
    """
    return (
        is_shown
        or sighting.has_devices
        or bool(sighting.bad)
        or bool(plan.create)
        or any(is_ours(one) for one in devices)
    )

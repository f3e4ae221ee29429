"""GPUDevice: one PCI device of a node."""

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from api.meta import Condition, Model, ObjectMeta
from api.names import (
    ASSIGNMENT_ANNOTATION,
    IGNORE_LABEL,
    MAX_MIG_INSTANCES,
    MAX_NUMA_NODE,
    DeviceName,
    NodeName,
)


class DeviceState(Enum):
    """Where a device stands; derived from facts, never set by hand."""

    UNASSIGNED = "Unassigned"
    ASSIGNED = "Assigned"
    RESERVED = "Reserved"
    """Some unit is held by a live reservation."""
    DRAINING = "Draining"
    """It leaves its pool: nothing new is placed on it, and it is free once no pod uses it."""
    FAULTED = "Faulted"


class PCI(Model, frozen=True):
    """Lower-case hex without 0x; the address as `0000:17:00.0`."""

    vendor: str = ""
    device: str = ""
    class_: str = msgspec.field(default="", name="class")
    address: str = ""


class MIGInstance(Model, frozen=True):
    """One GPU instance that exists on the card."""

    profile: str
    uuid: str


class MIG(Model, frozen=True):
    """Multi-Instance GPU: what the card can do and what is on it now."""

    capable: bool = False
    mode: str = ""
    profiles: list[str] | None = None
    instances: Annotated[list[MIGInstance], Meta(max_length=MAX_MIG_INSTANCES)] | None = None


class Link(Model, frozen=True):
    """A connection to another card of the node."""

    peer: str
    """inventoryID of the other card."""
    type: str
    count: int = 1


class PoolRef(Model, frozen=True):
    """The pool that owns the device."""

    name: str


class DeviceUnits(Model, frozen=True, omit_defaults=False):
    """Units of the device; what is in use is a sum, because slices share a card."""

    capacity: int = 0
    reserved: int = 0
    allocated: int = 0


class GPUDeviceSpec(Model, frozen=True):
    """Empty: a device is observed, not wished for."""


class GPUDeviceStatus(Model, frozen=True):
    """What is known of the device."""

    node_name: str = ""
    inventory_id: str = msgspec.field(default="", name="inventoryID")
    """`<node>-<pci address>`."""
    uuid: str = ""
    product: str = ""
    memory_mib: Annotated[int, Meta(ge=0)] = msgspec.field(default=0, name="memoryMiB")
    compute_capability: str = ""
    pci: PCI = PCI()
    numa_node: Annotated[int, Meta(ge=0, le=MAX_NUMA_NODE)] | None = None
    links: list[Link] | None = None
    mig: MIG = MIG()
    managed: bool = True
    state: DeviceState = DeviceState.UNASSIGNED
    pool_ref: PoolRef | None = None
    units: DeviceUnits = DeviceUnits()
    conditions: list[Condition] | None = None


class GPUDevice(Model, frozen=True):
    """One PCI device of a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUDeviceSpec = GPUDeviceSpec()
    status: GPUDeviceStatus = GPUDeviceStatus()

    @property
    def name(self) -> DeviceName:
        """Return the object's name."""
        return DeviceName(self.metadata.name)

    @property
    def node(self) -> NodeName:
        """Return the node that the device sits in."""
        return NodeName(self.status.node_name)

    @property
    def assignment(self) -> str | None:
        """Return the pool that the operator asked for."""
        return self.metadata.annotation(ASSIGNMENT_ANNOTATION)

    @property
    def is_ignored(self) -> bool:
        """Say whether the device is kept out of every pool."""
        return (self.metadata.label(IGNORE_LABEL) or "").lower() == "true"

    @property
    def is_faulted(self) -> bool:
        """Say whether the condition `Healthy` is False."""
        return self._shows("Healthy", "False")

    @property
    def is_draining(self) -> bool:
        """Say whether the condition `Draining` is True."""
        return self._shows("Draining", "True")

    def _shows(self, type_: str, status: str) -> bool:
        return any(c.type == type_ and c.status == status for c in self.status.conditions or ())

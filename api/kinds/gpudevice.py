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
    """State of a device, derived from observed facts; never set by hand."""

    UNASSIGNED = "Unassigned"
    ASSIGNED = "Assigned"
    RESERVED = "Reserved"
    """At least one unit is reserved for a pod that is not bound yet."""
    DRAINING = "Draining"
    """It leaves its pool: no new pod is placed on it, and it is free once no pod uses it."""
    FAULTED = "Faulted"


class PCI(Model, frozen=True):
    """PCI identifiers in lower-case hex without 0x; the address as `0000:17:00.0`."""

    vendor: str = ""
    device: str = ""
    class_: str = msgspec.field(default="", name="class")
    address: str = ""


class MIGInstance(Model, frozen=True):
    """One MIG instance that exists on the device."""

    profile: str
    uuid: str


class MIG(Model, frozen=True):
    """Multi-Instance GPU: capabilities and present instances."""

    capable: bool = False
    mode: str = ""
    profiles: list[str] | None = None
    instances: Annotated[list[MIGInstance], Meta(max_length=MAX_MIG_INSTANCES)] | None = None


class Link(Model, frozen=True):
    """A connection to another device of the node."""

    peer: str
    """inventoryID of the other device."""
    type: str
    count: int = 1


class PoolRef(Model, frozen=True):
    """The pool that owns the device."""

    name: str


class DeviceUnits(Model, frozen=True, omit_defaults=False):
    """Units of the device. Allocated units are a sum, because time slices share a device."""

    capacity: int = 0
    reserved: int = 0
    allocated: int = 0


class GPUDeviceSpec(Model, frozen=True):
    """Empty: a device is observed, and has no desired state."""


class GPUDeviceStatus(Model, frozen=True):
    """Observed state of the device."""

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
        return DeviceName(self.metadata.name)

    @property
    def node(self) -> NodeName:
        return NodeName(self.status.node_name)

    @property
    def assignment(self) -> str | None:
        """Return the pool in the operator's annotation, or None."""
        return self.metadata.annotation(ASSIGNMENT_ANNOTATION)

    @property
    def is_ignored(self) -> bool:
        """Return whether the label keeps the device out of every pool."""
        return (self.metadata.label(IGNORE_LABEL) or "").lower() == "true"

    @property
    def is_faulted(self) -> bool:
        return self._shows("Healthy", "False")

    @property
    def is_draining(self) -> bool:
        return self._shows("Draining", "True")

    def _shows(self, type_: str, status: str) -> bool:
        return any(c.type == type_ and c.status == status for c in self.status.conditions or ())

"""GPUDevice: one PCI device of a node."""

from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from api import names
from api.meta import Condition, Model, ObjectMeta
from api.open_enum import OpenEnum

MAX_XID: Final = 99_999
"""Limit of a code; those of the catalog have three digits."""


class DeviceState(Enum):
    """State of a device, derived from observed facts; never set by hand."""

    UNASSIGNED = "Unassigned"
    """It is in no pool."""
    ASSIGNED = "Assigned"
    """It is in a pool, and no unit of it is reserved for a pod that is not bound yet."""
    RESERVED = "Reserved"
    """At least one unit is reserved for a pod that is not bound yet."""
    DRAINING = "Draining"
    """It leaves its pool: no new pod is placed on it, and it is free once no pod uses it."""
    FAULTED = "Faulted"
    """It reports a fault: no new pod is placed on it, and running pods are left alone."""


class PCI(Model, frozen=True):
    """PCI identifiers in lower-case hex without 0x; the address as `0000:17:00.0`."""

    vendor: str = ""
    """Vendor id; 10de is NVIDIA."""
    device: str = ""
    """Device id, which identifies the model."""
    class_: str = msgspec.field(default="", name="class")
    """Class id; 0300 is a VGA controller, 0302 a 3D controller."""
    address: str = ""
    """Address on the PCI bus, as `0000:17:00.0`."""


class MIGInstance(Model, frozen=True):
    """One MIG instance that exists on the device."""

    profile: str
    """Profile of the instance, such as 1g.10gb."""
    uuid: str
    """UUID of the instance, as `MIG-<uuid>`."""


class MIG(Model, frozen=True):
    """Multi-Instance GPU: capabilities and present instances."""

    capable: bool = False
    """Whether the device supports MIG."""
    mode: str = ""
    """Enabled or Disabled; empty while no source reports it."""
    profiles: list[str] | None = None
    """Profiles that the device supports."""
    capacities: dict[str, int] | None = None
    """Number of instances of each profile that fit the empty device, as its driver says."""
    instances: Annotated[list[MIGInstance], Meta(max_length=names.MAX_MIG_INSTANCES)] | None = None
    """Instances that exist on the device."""

    @property
    def is_partitioned(self) -> bool:
        """Return whether MIG is on, with or without instances: nothing runs on the device as a whole."""
        return self.mode == "Enabled" or bool(self.instances)


class Link(Model, frozen=True):
    """A connection to another device of the node."""

    peer: str
    """inventoryID of the other device."""
    type: str
    """NVLink, or the nearest common part of the PCI topology: PIX (one switch), PXB (several switches), PHB (the host
    bridge), NODE (host bridges of one NUMA node), SYS (the interconnect of NUMA nodes)."""
    count: int = 1
    """Number of links of this type."""


class PoolRef(Model, frozen=True):
    """The pool that owns the device."""

    name: str
    """Name of the GPUPool."""


class DeviceUnits(Model, frozen=True, omit_defaults=False):
    """Units of the device. Allocated units are a sum, because time slices share a device."""

    capacity: int = 0
    """Units that the device exports."""
    reserved: int = 0
    """Units held for pods that are not bound yet."""
    allocated: int = 0
    """Units of bound pods."""


class RepairStep(OpenEnum):
    """Step of a repair."""

    WAITING = "Waiting"
    """The pool's repairs of this hour are used up."""
    DRAINING = "Draining"
    """The pods on it end, or are evicted."""
    RESETTING = "Resetting"
    """The node agent resets it."""
    TESTING = "Testing"
    """It was reset, and its clean samples are awaited."""
    REBOOT_ASKED = "RebootAsked"
    """Its node is cordoned and labelled for a reboot, which an operator does."""
    REPAIRED = "Repaired"
    """It is healthy again."""
    FAILED = "Failed"
    """Two resets did not help: the device is to be replaced."""


class DeviceRepair(Model, frozen=True):
    """The present repair of the device, or the last one."""

    step: RepairStep
    attempt: int = 0
    """Number of the reset; a fault within an hour of the last one goes on counting."""
    since: str = ""
    """Begin of the step."""
    started: str = ""
    """Begin of the attempt; absent while the repair waits for the budget, or for a reboot that evicts no pod."""
    message: str = ""
    """What the step waits for, or how it ended."""

    @property
    def is_over(self) -> bool:
        return self.step in {RepairStep.REPAIRED, RepairStep.FAILED}


class LastXid(Model, frozen=True):
    """The last Xid of the device, a fault or not."""

    code: Annotated[int, Meta(ge=1, le=MAX_XID)]
    """Code of NVIDIA's catalog of Xids."""
    time: str
    """Time of the Xid; of one that a DCGM exporter shows that of the first sample with it."""


class GPUDeviceSpec(Model, frozen=True):
    """Empty: a device is observed, and has no desired state."""


class GPUDeviceStatus(Model, frozen=True):
    """Observed state of the device."""

    node_name: str = ""
    """Node that the device is in."""
    inventory_id: str = msgspec.field(default="", name="inventoryID")
    """`<node>-<pci address>`."""
    uuid: str = ""
    """UUID of the device, as `GPU-<uuid>`; no unit is allocated before it is known."""
    product: str = ""
    """Product name in the spelling of gpu-feature-discovery's label, such as NVIDIA-A100-SXM4-80GB."""
    memory_mib: Annotated[int, Meta(ge=0)] = msgspec.field(default=0, name="memoryMiB")
    """Memory of the device in MiB."""
    compute_capability: str = ""
    """CUDA compute capability, such as 8.0."""
    pci: PCI = PCI()
    numa_node: Annotated[int, Meta(ge=0, le=names.MAX_NUMA_NODE)] | None = None
    """NUMA node of the PCI slot; absent on a machine without NUMA."""
    links: list[Link] | None = None
    """Connections to other devices of the node."""
    mig: MIG = MIG()
    managed: bool = True
    """False if the node opts out by its label, or a virtual machine has the device, by a VFIO driver: it joins no pool."""
    state: DeviceState = DeviceState.UNASSIGNED
    pool_ref: PoolRef | None = None
    units: DeviceUnits = DeviceUnits()
    repair: DeviceRepair | None = None
    """Only of a device that was faulty in a pool with spec.repair."""
    last_xid: LastXid | None = None
    """Absent where no Xid was reported; it stays when the device is healthy again."""
    conditions: list[Condition] | None = None
    """Healthy, Assigned (with the reason why it is in no pool), Draining, and Stale (a source of its facts is silent)."""


class GPUDevice(Model, frozen=True):
    """One PCI device of a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUDeviceSpec = GPUDeviceSpec()
    status: GPUDeviceStatus = GPUDeviceStatus()

    @property
    def name(self) -> names.DeviceName:
        return names.DeviceName(self.metadata.name)

    @property
    def node(self) -> names.NodeName:
        return names.NodeName(self.status.node_name)

    @property
    def assignment(self) -> str | None:
        """Return the pool in the operator's annotation, or None."""
        return self.metadata.annotation(names.ASSIGNMENT_ANNOTATION)

    @property
    def decided_by(self) -> str | None:
        """Return the user of the last decision on the device, as admission recorded it."""
        return self.metadata.annotation(names.DECIDED_BY_ANNOTATION)

    @property
    def is_ignored(self) -> bool:
        """Return whether the label keeps the device out of every pool."""
        return (self.metadata.label(names.IGNORE_LABEL) or "").lower() == "true"

    @property
    def is_faulted(self) -> bool:
        return self._has_condition("Healthy", "False")

    @property
    def needed_action(self) -> str:
        """Return what the device needs while it is faulted: the reason of its condition Healthy; else empty."""
        conditions = self.status.conditions or ()
        faults = (c.reason for c in conditions if c.type == "Healthy" and c.status == "False")
        return next(faults, "")

    @property
    def is_draining(self) -> bool:
        return self._has_condition("Draining", "True")

    def _has_condition(self, type_: str, status: str) -> bool:
        return any(c.type == type_ and c.status == status for c in self.status.conditions or ())

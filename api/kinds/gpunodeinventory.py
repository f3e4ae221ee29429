"""GPUNodeInventory: what is known of a node's GPUs; its name is the node's."""

from enum import Enum
from typing import Final

import msgspec

from api.meta import Condition, Model, ObjectMeta

MAX_ALLOCATIONS: Final = 2048
"""Entries of `status.allocations`: 16 cards of 64 slices are 1,024 units, and an entry has one at least.
One is 300 bytes with usual names, so that as many are 300 KB of the 1.5 MB that etcd takes."""


class BootstrapPhase(Enum):
    """How far the node's GPU software has come."""

    DISABLED = "Disabled"
    VALIDATING = "Validating"
    VALIDATING_FAILED = "ValidatingFailed"
    GFD = "GFD"
    MONITORING = "Monitoring"
    READY = "Ready"


class DriverVersions(Model, frozen=True):
    """Versions that the node reports."""

    version: str = ""
    cuda_version: str = ""
    toolkit_version: str = ""


class OperandStatus(Model, frozen=True, omit_defaults=False):
    """A piece of node software, as its pod on the node shows it."""

    name: str
    ready: bool = False
    message: str = ""
    """Why it is not ready; empty where it is, or is not required."""


class PoolDevices(Model, frozen=True):
    """Devices of one pool on the node."""

    pool: str
    devices: list[str]


class PoolMembership(Model, frozen=True):
    """Devices on their way into a pool, and those in one."""

    pending: list[PoolDevices] | None = None
    assigned: list[PoolDevices] | None = None


class ContainerDevices(Model, frozen=True):
    """What kubelet really gave to a container."""

    namespace: str
    pod: str
    container: str
    resource: str
    units: list[str]
    uid: str = ""


class GPUNodeInventorySpec(Model, frozen=True):
    """Empty: an inventory is observed."""


class GPUNodeInventoryStatus(Model, frozen=True):
    """What is known of the node."""

    devices: list[str] | None = None
    """Names of its GPUDevices."""
    driver: DriverVersions = DriverVersions()
    managed: bool = True
    """False where the node opts out by its label."""
    phase: BootstrapPhase | None = None
    operands: list[OperandStatus] | None = None
    last_heartbeat: str | None = None
    """Of the node's agent, as of the last write of something else, or the last one before it fell silent:
    a quiet node costs no writes."""
    pools: PoolMembership = PoolMembership()
    allocations: list[ContainerDevices] | None = None
    """What kubelet reports for every container that has devices; written by the node's agent alone."""
    conditions: list[Condition] | None = None


class GPUNodeInventory(Model, frozen=True):
    """What is known of a node's GPUs; its name is the node's."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUNodeInventorySpec = GPUNodeInventorySpec()
    status: GPUNodeInventoryStatus = msgspec.field(default_factory=GPUNodeInventoryStatus)

"""Conditions that we write, with their reasons; the only home of such strings."""

from enum import Enum


class PoolCondition(Enum):
    """Condition types of a GPUPool."""

    READY = "Ready"
    SUPPORTED = "Supported"
    MISCONFIGURED = "Misconfigured"
    MAINTENANCE = "Maintenance"
    CAPACITY_LOW = "CapacityLow"
    CONFLICT = "Conflict"
    """True while a device that this pool wants belongs to another pool."""


class PoolReady(Enum):
    """Reasons of the condition Ready."""

    SERVING = "Serving"
    NO_DEVICES = "NoDevices"
    NO_HEALTHY_DEVICES = "NoHealthyDevices"
    TERMINATING = "Terminating"
    IN_MAINTENANCE = "InMaintenance"
    MISCONFIGURED = "Misconfigured"
    UNSUPPORTED = "Unsupported"


class PoolSupported(Enum):
    """Reasons of the condition Supported."""

    SUPPORTED = "Supported"
    UNSUPPORTED_VENDOR = "UnsupportedVendor"
    """The selector includes cards of other vendors than NVIDIA only."""


class PoolMisconfigured(Enum):
    """Reasons of the condition Misconfigured."""

    VALID = "Valid"
    RESOURCE_NAME_TAKEN = "ResourceNameTaken"
    """An older pool serves the resource."""
    BAD_SPEC = "BadSpec"
    """A rule that the API server checks now does not hold for an object written before."""
    PROFILE_NOT_SUPPORTED = "ProfileNotSupported"
    """No card that the pool has can make the MIG profile."""


class PoolMaintenance(Enum):
    """Reasons of the condition Maintenance."""

    NONE = "UpToDate"
    WAITING = "WaitingForPods"
    EVICTING = "EvictingPods"
    OVERDUE = "DeadlineExceeded"
    REBUILDING = "Rebuilding"
    """The new allocation is in effect, and the nodes are still cutting the cards."""
    BLOCKED = "Blocked"
    """The pool cannot have the allocation that its spec wants."""


class PoolCapacityLow(Enum):
    """Reasons of the condition CapacityLow."""

    ENOUGH = "UnitsAvailable"
    EXHAUSTED = "Exhausted"
    """Nothing is free."""
    LOW = "FewUnitsAvailable"
    """Less than a tenth is free."""


class PoolConflict(Enum):
    """Reasons of the condition Conflict."""

    NONE = "NoConflict"
    OWNED_BY_OTHER_POOL = "OwnedByOtherPool"


class PoolPhase(Enum):
    """`status.phase` of a GPUPool."""

    PENDING = "Pending"
    """No device yet."""
    READY = "Ready"
    DEGRADED = "Degraded"
    """Devices, but none of them healthy."""
    MAINTENANCE = "Maintenance"
    """No new pods until the new allocation is in effect."""
    MISCONFIGURED = "Misconfigured"
    TERMINATING = "Terminating"


class DeviceCondition(Enum):
    """Condition types of a GPUDevice; each has one writer."""

    HEALTHY = "Healthy"
    """Written by `device.health`."""
    ASSIGNED = "Assigned"
    """Written by `device.assignment`, as is Draining."""
    DRAINING = "Draining"
    STALE = "Stale"
    """Written by `node.inventory`: a source of facts went silent, and what it said last stands."""


class DeviceAssigned(Enum):
    """Reasons of a device's condition Assigned, in the order in which they are looked at."""

    ASSIGNED = "Assigned"
    IGNORED = "Ignored"
    NOT_MANAGED = "NotManaged"
    AMBIGUOUS_UUID = "AmbiguousUUID"
    """Another device claims the same UUID."""
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    FAULTED = "Faulted"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_TERMINATING = "PoolTerminating"
    POOL_UNSUPPORTED = "PoolUnsupported"
    POOL_MISCONFIGURED = "PoolMisconfigured"
    SELECTOR_MISMATCH = "SelectorMismatch"
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    NODE_NOT_READY_FOR_POOLING = "NodeNotReadyForPooling"
    OWNED_BY_OTHER_POOL = "OwnedByOtherPool"
    MAX_DEVICES_PER_NODE = "MaxDevicesPerNode"
    NO_POOL_WANTS_IT = "NoPoolWantsIt"


class DeviceHealthy(Enum):
    """Reasons of a device's condition Healthy."""

    HEALTHY = "Healthy"
    XID_ERROR = "XIDError"
    ECC_ERROR = "ECCError"
    LOST = "Lost"
    THERMAL = "Thermal"
    REPORTED_UNHEALTHY = "ReportedUnhealthy"


class DeviceStale(Enum):
    """Reasons of a device's condition Stale."""

    FRESH = "Fresh"
    SOURCE_SILENT = "SourceSilent"


class InventoryCondition(Enum):
    """Condition types of a GPUNodeInventory. The negative ones are True when something is wrong."""

    MANAGED_DISABLED = "ManagedDisabled"
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"
    GFD_READY = "GFDReady"
    MONITORING_MISSING = "MonitoringMissing"
    INFRA_DEGRADED = "InfraDegraded"
    """Something that was ready is not any more."""
    DEGRADED_WORKLOADS = "DegradedWorkloads"
    """Pods run on devices of a node whose software is not ready."""
    READY_FOR_POOLING = "ReadyForPooling"
    AGENT_DEGRADED = "AgentDegraded"
    """The node's agent cannot do its work in full; written by the agent itself."""


class InventoryManaged(Enum):
    """Reasons of the condition ManagedDisabled."""

    MANAGED = "Managed"
    DISABLED = "DisabledByLabel"


class InventoryIncomplete(Enum):
    """Reasons of the condition InventoryIncomplete; the first that applies, in this order."""

    COMPLETE = "Complete"
    CLAIMED = "UUIDsClaimed"
    SOURCE = "SourceMissing"
    ADDRESSES = "AddressesMissing"
    DEVICES = "DevicesMissing"
    UUIDS = "UUIDsMissing"


class ReadyForPooling(Enum):
    """Reasons of the condition ReadyForPooling; the first that applies, in this order."""

    MANAGED_DISABLED = "ManagedDisabled"
    NO_DEVICES = "NoDevices"
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    DEVICES_FAULTED = "DevicesFaulted"
    """Every device is faulted."""
    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"
    VALIDATION_FAILED = "ValidationFailed"
    GFD_NOT_READY = "GFDNotReady"
    MONITORING_MISSING = "MonitoringMissing"
    VALIDATING = "Validating"
    """Nothing fails, and something was not seen good often enough yet."""
    READY = "Ready"


class NodeSoftware(Enum):
    """Reasons of DriverMissing, ToolkitMissing, GFDReady, MonitoringMissing, InfraDegraded, DegradedWorkloads."""

    READY = "Ready"
    NOT_READY = "NotReady"
    VALIDATING = "Validating"
    """It was not seen often enough yet to say."""
    NOT_REQUIRED = "NotRequired"
    """Nothing reports it, and nothing needs it."""
    NOT_MANAGED = "NotManaged"
    """The node opts out: nobody looks."""
    AS_EXPECTED = "AsExpected"
    """Nothing that was ready is not any more, or nobody is harmed by it."""


class AgentDegraded(Enum):
    """Reasons of the condition AgentDegraded; the first that applies, in this order."""

    DRIVER_MISSING = "DriverMissing"
    """No NVML library: what the PCI bus tells is all there is."""
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    """NVML is there, and the kernel's driver is not."""
    DRIVER_HANGS = "DriverHangs"
    """A call did not return in time; what was known before is kept."""
    DRIVER_FAILS = "DriverFails"
    KUBELET_SILENT = "KubeletSilent"
    """PodResources does not answer: what containers got is not known."""
    NOT_REGISTERED = "PluginNotRegistered"
    """kubelet does not know a device plugin."""
    BAD_CONFIG = "BadConfig"
    """The list of a pool's cards makes no sense; the last good one is used."""
    NOT_PUBLISHED = "NotPublished"
    """NodeFeature, the CDI specification or the file of cards cannot be written."""
    PARTITIONING_BLOCKED = "PartitioningHeldUp"
    PROCESSES_LEFT = "ProcessesLeft"
    """A pod is gone, and its processes keep its devices."""
    AS_EXPECTED = "AsExpected"

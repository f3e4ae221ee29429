"""Condition types and their reasons; the only home of such strings."""

from enum import Enum


class PoolCondition(Enum):
    """Condition types of a GPUPool."""

    READY = "Ready"
    SUPPORTED = "Supported"
    MISCONFIGURED = "Misconfigured"
    MAINTENANCE = "Maintenance"
    CAPACITY_LOW = "CapacityLow"
    CONFLICT = "Conflict"
    """True while a device that this pool selects belongs to another pool."""


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
    """The selector includes devices of vendors other than NVIDIA only."""


class PoolMisconfigured(Enum):
    """Reasons of the condition Misconfigured."""

    VALID = "Valid"
    RESOURCE_NAME_TAKEN = "ResourceNameTaken"
    """An older pool serves the resource."""
    BAD_SPEC = "BadSpec"
    """The stored object breaks a rule that was introduced after it was written."""
    PROFILE_NOT_SUPPORTED = "ProfileNotSupported"
    """No device of the pool supports the MIG profile."""


class PoolMaintenance(Enum):
    """Reasons of the condition Maintenance."""

    NONE = "UpToDate"
    WAITING = "WaitingForPods"
    EVICTING = "EvictingPods"
    OVERDUE = "DeadlineExceeded"
    REBUILDING = "Rebuilding"
    """The new allocation is in effect, and nodes are still partitioning devices."""
    BLOCKED = "Blocked"
    """The allocation of the spec is not possible for the pool."""


class PoolCapacityLow(Enum):
    """Reasons of the condition CapacityLow."""

    ENOUGH = "UnitsAvailable"
    EXHAUSTED = "Exhausted"
    """No unit is free."""
    LOW = "FewUnitsAvailable"
    """Less than a tenth of the units is free."""


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
    """Written by `node.inventory`: a source of facts is silent, and its last report is kept."""


class DeviceAssigned(Enum):
    """Reasons of a device's condition Assigned, in the order in which they are checked."""

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
    """Condition types of a GPUNodeInventory. Those of negative polarity are True on a fault."""

    MANAGED_DISABLED = "ManagedDisabled"
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"
    GFD_READY = "GFDReady"
    MONITORING_MISSING = "MonitoringMissing"
    INFRA_DEGRADED = "InfraDegraded"
    """A component that was ready is not ready any more."""
    DEGRADED_WORKLOADS = "DegradedWorkloads"
    """Pods run on devices of a node whose software is not ready."""
    READY_FOR_POOLING = "ReadyForPooling"
    AGENT_DEGRADED = "AgentDegraded"
    """The node's agent works with restrictions; written by the agent itself."""


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
    """No check fails, and at least one has not succeeded often enough yet."""
    READY = "Ready"


class NodeSoftware(Enum):
    """Reasons of DriverMissing, ToolkitMissing, GFDReady, MonitoringMissing, InfraDegraded, DegradedWorkloads."""

    READY = "Ready"
    NOT_READY = "NotReady"
    VALIDATING = "Validating"
    """Not observed often enough yet to decide."""
    NOT_REQUIRED = "NotRequired"
    """No source reports the component, and no other component needs it."""
    NOT_MANAGED = "NotManaged"
    """The node opts out of management."""
    AS_EXPECTED = "AsExpected"
    """Components that were ready still are, or no pod is affected."""


class AgentDegraded(Enum):
    """Reasons of the condition AgentDegraded; the first that applies, in this order."""

    DRIVER_MISSING = "DriverMissing"
    """The NVML library is missing; facts come from the PCI bus only."""
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    """NVML is installed, and the kernel driver is not loaded."""
    DRIVER_HANGS = "DriverHangs"
    """A driver call timed out; earlier facts are kept."""
    DRIVER_FAILS = "DriverFails"
    KUBELET_SILENT = "KubeletSilent"
    """PodResources does not answer: the actual allocations are unknown."""
    NOT_REGISTERED = "PluginNotRegistered"
    """A device plugin is not registered with kubelet."""
    BAD_CONFIG = "BadConfig"
    """The device list of a pool is invalid; the last valid one is used."""
    NOT_PUBLISHED = "NotPublished"
    """NodeFeature, the CDI specification or the file of devices cannot be written."""
    PARTITIONING_BLOCKED = "PartitioningHeldUp"
    PROCESSES_LEFT = "ProcessesLeft"
    """Processes of a deleted pod still use its devices."""
    KUBELET_CONFIGURATION_UNKNOWN = "KubeletConfigurationUnknown"
    """The settings of kubelet's TopologyManager cannot be read: they count as policy none."""
    CACHES_BLOCKED = "KernelCachesBlocked"
    """The store of kernel caches, or the mounts of the node's pods, cannot be used."""
    AS_EXPECTED = "AsExpected"


class PoolScalingCondition(Enum):
    """Condition types in status.autoscaling of a GPUPool."""

    BACKEND_READY = "BackendReady"
    NODE_POOL_VALID = "NodePoolValid"
    WITHIN_LIMITS = "WithinLimits"
    BUDGET_AVAILABLE = "BudgetAvailable"
    SHAPES_AVAILABLE = "ShapesAvailable"


class NodePoolValid(Enum):
    """Reasons of the condition NodePoolValid in status.autoscaling; the first that applies, the last is that of True."""

    INVALID = "NodePoolInvalid"
    SPEC = "SpecNotUsed"
    """A part of spec.autoscaling has no valid value, and is not considered."""
    FOREIGN = "ForeignNodeClaim"
    """A NodeClaim has the label of a request that this control plane did not make."""
    VALID = "Valid"


class ScalingUnlimited(Enum):
    """Reason of the conditions WithinLimits, BudgetAvailable and ShapesAvailable while they are True."""

    AS_EXPECTED = "AsExpected"


class BackendReady(Enum):
    """Reasons of the condition BackendReady in status.autoscaling; the first is that of True."""

    READY = "Ready"
    NOT_ENABLED = "BackendNotEnabled"
    """The server's settings do not allow the backend of the spec."""
    NO_KARPENTER = "KarpenterMissing"
    NO_OVERLAY = "NodeOverlayNotReady"
    NO_BUFFERS = "CapacityBufferMissing"
    BUFFERS_NOT_SERVED = "CapacityBuffersNotServed"
    """Karpenter does not look at the pool's buffers."""
    STATIC_NOT_SERVED = "StaticCapacityNotServed"
    """Karpenter makes no NodeClaim for the replicas of a static NodePool."""
    FOREIGN_OBJECT = "ForeignObject"
    """An object of another owner has the name of one that the backend needs."""
    REFUSED = "RequestRefused"
    """The API server refuses what the backend writes."""

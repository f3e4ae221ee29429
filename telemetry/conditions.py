"""Condition types and their reasons; the only home of such strings."""

from enum import Enum


class PodUnitsAvailable(Enum):
    """Reasons of the condition `api.names.UNITS_CONDITION` of a pod that does not wait any more.

    That of a pod that waits has the reasons of `pool.what_if`.
    """

    RESERVED = "UnitsReserved"
    ALLOCATED = "UnitsAllocated"
    """The pod is bound."""


class PoolCondition(Enum):
    """Condition types of a GPUPool."""

    READY = "Ready"
    """True while the pool has a healthy device and takes pods."""
    SUPPORTED = "Supported"
    """False where the pool selects devices that the control plane does not serve."""
    MISCONFIGURED = "Misconfigured"
    """True while the pool cannot work as its spec says."""
    MAINTENANCE = "Maintenance"
    """True while its allocation is being changed, or others partition its devices; it takes no new pods."""
    CAPACITY_LOW = "CapacityLow"
    """True while few of its units are free, or none."""
    CONFLICT = "Conflict"
    """True while a device that this pool selects belongs to another pool."""


class PoolReady(Enum):
    """Reasons of the condition Ready."""

    SERVING = "Serving"
    """The pool takes pods."""
    NO_DEVICES = "NoDevices"
    """The pool has no device."""
    NO_HEALTHY_DEVICES = "NoHealthyDevices"
    """The pool has devices, and none of them is healthy."""
    TERMINATING = "Terminating"
    """The pool is being deleted."""
    IN_MAINTENANCE = "InMaintenance"
    """The condition Maintenance is True."""
    MISCONFIGURED = "Misconfigured"
    """The condition Misconfigured is True."""
    UNSUPPORTED = "Unsupported"
    """The condition Supported is False."""


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
    """No device of the pool can hold its MIG instances."""
    LAYOUT_DIFFERS = "LayoutDiffers"
    """Others partition its devices: the condition Maintenance says which, and what ends it."""


class PoolMaintenance(Enum):
    """Reasons of the condition Maintenance."""

    NONE = "UpToDate"
    """The allocation of the spec is in effect."""
    WAITING = "WaitingForPods"
    """Pods still use units of the old allocation."""
    EVICTING = "EvictingPods"
    """Pods that use units of the old allocation are being evicted."""
    OVERDUE = "DeadlineExceeded"
    """Pods delay the change beyond `spec.maintenance.deadline`; the message names them."""
    REBUILDING = "Rebuilding"
    """The new allocation is in effect, and nodes are still partitioning devices."""
    BLOCKED = "Blocked"
    """The allocation of the spec is not possible for the pool."""
    LAYOUT_DIFFERS = "LayoutDiffers"
    """Others partition its devices; the annotation `gpu.deckhouse.io/confirm=<generation>` ends it."""


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


class DeviceCondition(Enum):
    """Condition types of a GPUDevice; each has one writer."""

    HEALTHY = "Healthy"
    """False while it reports a fault, or is lost; written by `device.health`."""
    ASSIGNED = "Assigned"
    """True while it is in a pool, otherwise the reason why not; written by `device.assignment`, as is Draining."""
    DRAINING = "Draining"
    """It leaves its pool: no new pod is placed on it."""
    STALE = "Stale"
    """Written by `node.inventory`: a source of facts is silent, and its last report is kept."""


class DeviceAssigned(Enum):
    """Reasons of a device's condition Assigned, in the order in which they are checked."""

    ASSIGNED = "Assigned"
    IGNORED = "Ignored"
    """The label `gpu.deckhouse.io/ignore=true` keeps it out."""
    NOT_MANAGED = "NotManaged"
    """The node opts out by the label `gpu.deckhouse.io/enabled=false`."""
    AMBIGUOUS_UUID = "AmbiguousUUID"
    """Another device claims the same UUID."""
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    """Its UUID or PCI address is not known yet."""
    FAULTED = "Faulted"
    """A device in no pool joins none while it is faulted."""
    POOL_NOT_FOUND = "PoolNotFound"
    """Its annotation names a pool that does not exist."""
    POOL_TERMINATING = "PoolTerminating"
    """The pool is being deleted."""
    POOL_UNSUPPORTED = "PoolUnsupported"
    """The pool has the condition Supported with status False."""
    POOL_MISCONFIGURED = "PoolMisconfigured"
    """The pool has the condition Misconfigured."""
    SELECTOR_MISMATCH = "SelectorMismatch"
    """The pool's deviceSelector does not match; the message has field and values."""
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    """The pool's nodeSelector does not match its node."""
    NODE_NOT_READY_FOR_POOLING = "NodeNotReadyForPooling"
    """Its node has the condition ReadyForPooling with status False."""
    OWNED_BY_OTHER_POOL = "OwnedByOtherPool"
    """It leaves its former pool when the pods there have ended."""
    OTHER_PLUGIN = "OtherDevicePlugin"
    """NVIDIA's own device plugin leaves its node first, and pods that have the device by it end."""
    MAX_DEVICES_PER_NODE = "MaxDevicesPerNode"
    """The pool has as many devices of the node as it may."""
    AWAITS_DECISION = "AwaitsDecision"
    """A pool selects it, and takes it by annotation only: the message names the pools."""
    NO_POOL_WANTS_IT = "NoPoolWantsIt"
    """No annotation names a pool, and no pool selects it."""


class DeviceHealthy(Enum):
    """Reason of a device's condition Healthy while it is; that of a faulted device is what it needs."""

    HEALTHY = "Healthy"


class DeviceStale(Enum):
    """Reasons of a device's condition Stale."""

    FRESH = "Fresh"
    SOURCE_SILENT = "SourceSilent"


class InventoryCondition(Enum):
    """Condition types of a GPUNodeInventory. Those of negative polarity are True on a fault."""

    MANAGED_DISABLED = "ManagedDisabled"
    """True where the node opts out by the label `gpu.deckhouse.io/enabled=false`."""
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    """True where devices are missing, or facts about them."""
    DRIVER_MISSING = "DriverMissing"
    """True while the driver is not ready."""
    TOOLKIT_MISSING = "ToolkitMissing"
    """True while the container toolkit is not ready."""
    GFD_READY = "GFDReady"
    """True while feature discovery is ready."""
    MONITORING_MISSING = "MonitoringMissing"
    """True while DCGM or its exporter is not ready."""
    INFRA_DEGRADED = "InfraDegraded"
    """True while a component that was ready is not ready any more."""
    DEGRADED_WORKLOADS = "DegradedWorkloads"
    """True while pods run on devices of a node whose software is not ready."""
    READY_FOR_POOLING = "ReadyForPooling"
    """True while the node's devices may join pools."""
    AGENT_DEGRADED = "AgentDegraded"
    """True while the node's agent works with restrictions; written by the agent itself."""


class InventoryManaged(Enum):
    """Reasons of the condition ManagedDisabled."""

    MANAGED = "Managed"
    DISABLED = "DisabledByLabel"


class InventoryIncomplete(Enum):
    """Reasons of the condition InventoryIncomplete; the first that applies, in this order."""

    COMPLETE = "Complete"
    PASSED_THROUGH = "BoundToVFIO"
    """Every device is reported, but for those that are bound to a VFIO driver, which virtual machines have."""
    CLAIMED = "UUIDsClaimed"
    """The node reports UUIDs of devices that are elsewhere."""
    SOURCE = "SourceMissing"
    """NFD finds a device, and no source identifies it."""
    ADDRESSES = "AddressesMissing"
    """Labels number devices, and no source has their PCI addresses."""
    DEVICES = "DevicesMissing"
    """More devices are on the bus than are reported."""
    UUIDS = "UUIDsMissing"
    """A device has no UUID: no driver runs there yet."""


class ReadyForPooling(Enum):
    """Reasons of the condition ReadyForPooling; the first that applies, in this order."""

    MANAGED_DISABLED = "ManagedDisabled"
    """The node opts out by its label."""
    NO_DEVICES = "NoDevices"
    """No device of the node is known by its PCI address."""
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    """No device of the node has a UUID."""
    DEVICES_FAULTED = "DevicesFaulted"
    """Every device is faulted."""
    DRIVER_MISSING = "DriverMissing"
    """The driver is not ready."""
    TOOLKIT_MISSING = "ToolkitMissing"
    """The container toolkit is not ready."""
    VALIDATION_FAILED = "ValidationFailed"
    """The validator is not ready for another reason, or not on the node."""
    GFD_NOT_READY = "GFDNotReady"
    """Feature discovery is not ready, or not on the node."""
    MONITORING_MISSING = "MonitoringMissing"
    """DCGM or its exporter is not ready, not on the node, or does not answer."""
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
    """A driver call failed; the message has the error and the cure."""
    KUBELET_SILENT = "KubeletSilent"
    """PodResources does not answer: the actual allocations are unknown."""
    NOT_REGISTERED = "PluginNotRegistered"
    """A device plugin is not registered with kubelet."""
    BAD_CONFIG = "BadConfig"
    """The device list of a pool is invalid; the last valid one is used."""
    NOT_PUBLISHED = "NotPublished"
    """NodeFeature, the CDI specification or the file of devices cannot be written."""
    PARTITIONING_BLOCKED = "PartitioningHeldUp"
    """A device waits to be partitioned: pods or processes use it, or the driver refuses."""
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
    """False where the backend of the spec cannot be used; another one may be in use."""
    NODE_POOL_VALID = "NodePoolValid"
    """False where a NodePool of the pool cannot be used."""
    WITHIN_LIMITS = "WithinLimits"
    """False while a pod waits because maxUnits, maxInFlight, maxNodesPerHour or a limit of the NodePool is reached."""
    BUDGET_AVAILABLE = "BudgetAvailable"
    """False while a pod waits because the budget allows no further node."""
    SHAPES_AVAILABLE = "ShapesAvailable"
    """False while a pod waits because no shape serves it, or its shapes failed lately."""


class NodePoolValid(Enum):
    """Reasons of the condition NodePoolValid in status.autoscaling; the first that applies, the last is that of True."""

    INVALID = "NodePoolInvalid"
    """The NodePool does not exist, or lacks a part that the control plane depends on."""
    SPEC = "SpecNotUsed"
    """A part of spec.autoscaling has no valid value, and is not considered."""
    FOREIGN = "ForeignNodeClaim"
    """A NodeClaim has the label of a request that this control plane did not make."""
    SOFTWARE_KEPT_AWAY = "NodeSoftwareKeptAway"
    """A DaemonSet of node software does not tolerate the taints of the pool's nodes, and has no pod there."""
    VALID = "Valid"


class ScalingUnlimited(Enum):
    """Reason of the conditions WithinLimits, BudgetAvailable and ShapesAvailable while they are True."""

    AS_EXPECTED = "AsExpected"


class BackendReady(Enum):
    """Reasons of the condition BackendReady in status.autoscaling; the first is that of True."""

    READY = "Ready"
    REMOVED = "BackendRemoved"
    """The backend of the spec does not exist any more; karpenter-signal is used in its place."""
    NOT_ENABLED = "BackendNotEnabled"
    """The server's settings do not allow the backend of the spec."""
    NO_KARPENTER = "KarpenterMissing"
    """The cluster does not serve the kinds of Karpenter."""
    FOREIGN_OBJECT = "ForeignObject"
    """An object of another owner has the name of one that the backend needs."""
    REFUSED = "RequestRefused"
    """The API server refuses what the backend writes."""


class ConfigCondition(Enum):
    """Condition types of a GPUControlPlaneConfig."""

    APPLIED = "Applied"
    """True while the settings in force are those of the spec."""
    RESTART_NEEDED = "RestartNeeded"
    """True while settings of the spec count only after a restart of the servers."""
    REFUSED = "Refused"
    """True while the spec, or a ModuleConfig, has an invalid setting."""


class ConfigReason(Enum):
    """Reasons of these conditions."""

    IN_FORCE = "InForce"
    """All settings of the spec are in force."""
    READ_AT_START = "ReadAtStart"
    """Servers read the named settings when they start."""
    INVALID = "InvalidSettings"
    """The message names each invalid setting; the settings that were accepted last stay in force."""

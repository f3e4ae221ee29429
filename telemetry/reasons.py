"""Reasons of Events, of refusals at admission, and of node refusals in the scheduler's reply.

The only home of such strings. Event reasons and refusal reasons are PascalCase; texts name the
object and the cure.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

from pool.demand import Measure
from pool.refusal import NodeReason

if TYPE_CHECKING:
    from api.names import PoolName
    from pool.demand import TooLarge
    from pool.refusal import NodeRefusal

REPORTING_CONTROLLER: Final = "gpu.deckhouse.io/control-plane"


class CacheNodeEvent(Enum):
    """`reason` of the Events on a GKMCacheNode or ClusterGKMCacheNode; the names are GKM's."""

    CREATED = "Created"
    """The node has the first cache of this object's scope."""
    CACHE_USED = "CacheUsed"
    """The first pod of the node mounted a digest of the cache."""
    CACHE_RELEASED = "CacheRelease"
    """The last pod of the node unmounted it."""
    DELETING = "Deleting"
    """The node has none of the caches any more."""


class EventReason(Enum):
    """`reason` of the Events of the control plane and of its agents.

    Reasons begin with `GPU`. `Maintenance` and `Misconfigured` do not: the requirements prescribe
    these two names.
    """

    RESERVATION_EXPIRED = "GPUReservationExpired"
    """On the pool and on the pod: a reservation expired before the pod was bound."""
    POD_UNACCOUNTED = "GPUPodUnaccounted"
    """On the pod: it runs on unknown units, so its node accepts no more pods of the pool."""
    UNITS_HELD_TWICE = "GPUUnitsHeldTwice"
    """On each of two pods that are bound with one unit; only a foreign Binding causes it."""
    UNITS_KEPT = "GPUUnitsKept"
    """On the pod: finalizers keep it after its end, and its containers are shown running, so that its units are in use."""

    POD_WAITS = "GPUPodWaits"
    """On the pod: the reason why it waits for units, once for each reason; its condition has the present figures."""

    DEVICES_SUBSTITUTED = "GPUDevicesSubstituted"
    """On the pod: a container gets other devices than its assigned ones, which are gone or in use."""
    DEVICES_REFUSED = "GPUDevicesRefused"
    """On the pod: kubelet rejects it, because no device is free for exclusive use."""
    ALLOCATION_MISMATCH = "GPUAllocationMismatch"
    """On the pod: kubelet allocated other devices than it was bound with; accounting follows kubelet."""

    PROCESS_UNACCOUNTED = "GPUProcessUnaccounted"
    """On the pod: it has a process on a device of a pool that kubelet did not give to it."""

    DEVICE_PARTITIONED = "GPUPartitioned"
    """On the device: its MIG partitions match its pool, or it is unpartitioned again."""
    PARTITIONING_BLOCKED = "GPUPartitioningHeldUp"
    """On the device: repartitioning waits for pods or processes on it, or the driver refuses."""

    DEVICE_DETECTED = "GPUDeviceDetected"
    """On the device: it is new. All devices of a new node are one Event, on the node's inventory."""
    DEVICE_REMOVED = "GPUDeviceRemoved"
    """On the node: a device is gone, and with it what was decided on it."""
    DEVICE_FAULTED = "GPUDeviceFaulted"
    """On the device, and on each pod that uses it: it reports a fault, or is lost."""
    DEVICE_RECOVERED = "GPUDeviceRecovered"
    """On the device: its fault is over, and pods are placed on it again."""
    DEVICE_REPAIR = "GPUDeviceRepair"
    """On the device: the next step of its repair. By the node agent: the outcome of a reset."""
    DEVICE_REPAIR_FAILED = "GPUDeviceRepairFailed"
    """On the device: its resets did not help, and it is to be replaced."""
    NODE_REBOOT_NEEDED = "GPUNodeRebootNeeded"
    """On the node: a device needs a reboot of it; it is cordoned and labelled until then."""
    DUPLICATE_UUID = "GPUDuplicateUUID"
    """On both devices that claim one UUID."""
    SOURCE_SILENT = "GPUSourceSilent"
    """On the node's inventory: a source reports nothing; its last facts are kept, marked stale."""
    BAD_FEATURE = "GPUBadFeature"
    """On the node's inventory: a label or attribute has an invalid value."""
    CONTRADICTORY_LINKS = "GPUContradictoryLinks"
    """On the node's inventory: two devices report different links between each other."""

    DRIVER_MISSING = "GPUDriverMissing"
    """On the node's inventory: the driver is not ready."""
    TOOLKIT_MISSING = "GPUToolkitMissing"
    """On the node's inventory: the container toolkit is not ready."""
    FEATURE_DISCOVERY_MISSING = "GPUFeatureDiscoveryMissing"
    """On the node's inventory: feature discovery is not ready."""
    MONITORING_MISSING = "GPUMonitoringMissing"
    """On the node's inventory: DCGM or its exporter is not ready."""
    INFRA_DEGRADED = "GPUInfraDegraded"
    """On the node's inventory: a component that was ready is not ready any more."""
    DEGRADED_WORKLOADS = "GPUDegradedWorkloads"
    """On the node's inventory: pods use devices of the node while its software is not ready."""
    INVENTORY_INCOMPLETE = "GPUInventoryIncomplete"
    """On the node's inventory: devices are missing, or facts about them."""
    NODE_OPTED_OUT = "GPUNodeOptedOut"
    """On the node's inventory: the node's label keeps its devices out of every pool."""
    NODE_RECOVERED = "GPUNodeRecovered"
    """On the node's inventory: a condition that one of the Events above reported is over; the note names it."""
    NODE_READY_FOR_POOLING = "GPUNodeReadyForPooling"
    """On the node's inventory: the node's devices may join pools."""
    NODE_NOT_READY_FOR_POOLING = "GPUNodeNotReadyForPooling"
    """On the node's inventory: the node was ready for pooling and no longer is; its devices in pools stay there."""
    NODE_WITHOUT_POOL = "GPUNodeWithoutPool"
    """On the node's inventory: the node is ready for pooling, and no pool has one of its devices."""
    UNASSIGNED_DEVICE = "GPUUnassignedDevice"
    """On the device: it is ready and in no pool: none selects it, or it waits for a decision."""
    ANNOTATION_MISMATCH = "GPUAnnotationMismatch"
    """On the device: the pool that its annotation names does not select it."""
    DEVICE_ASSIGNED = "GPUDeviceAssigned"
    """On the device: it is in a pool now."""
    DEVICE_RELEASED = "GPUDeviceReleased"
    """On the device: it is in no pool any more."""
    DEVICE_DRAINING = "GPUDeviceDraining"
    """On the device: it leaves its pool once no pod uses or reserves it."""
    ASSIGNMENT_CONFLICT = "GPUAssignmentConflict"
    """On the device and on both pools: another pool owns a device that this pool selects."""

    ACCESS_AGEING = "GPUAccessAgeing"
    """On a pod of the workload: new ones are refused after a time, unless a member of the pool's groups renews the template."""

    POOL_READY = "GPUPoolReady"
    """On the pool: it has a healthy device and takes pods."""
    POOL_NOT_READY = "GPUPoolNotReady"
    """On the pool: it was ready and takes no more pods; the note says why."""
    POOL_RECONFIGURED = "GPUPoolReconfigured"
    """On the pool: its new allocation is in effect."""
    MAINTENANCE = "Maintenance"
    """On the pool: it accepts no new pods until no unit is in use, or until an operator confirms that nobody else
    partitions its devices."""
    MISCONFIGURED = "Misconfigured"
    """On the pool: another pool serves its resource, its spec breaks a rule, or others partition its devices."""
    POOL_TERMINATING = "GPUPoolTerminating"
    """On the pool: running pods delay its deletion."""
    CAPACITY_LOW = "GPUPoolCapacityLow"
    """On the pool: less than a tenth of its units is free, or none."""

    NAMESPACE_RESTRICTED = "GPUNamespaceRestricted"
    """On our Namespace: the pod security that another client enforces keeps our DaemonSets' pods out."""
    CONFIGURATION_REFUSED = "GPUConfigurationRefused"
    """On the GPUControlPlaneConfig: a setting is invalid, and the settings that were accepted last stay in force."""
    DRIVER_UPGRADE = "GPUDriverUpgrade"
    """On the node: the upgrade of its driver begins, goes on, waits or ends; the note says why."""
    DRIVER_UPGRADE_FAILED = "GPUDriverUpgradeFailed"
    """On the node: the upgrade of its driver failed; it is tried again after a pause."""
    OPERAND_NOT_APPLIED = "GPUOperandNotApplied"
    """On an object of an operand: the API server refuses it; the other operands go on."""
    OPERAND_RESTORED = "GPUOperandRestored"
    """On an object of ours: another client changed or deleted it, or has it stored otherwise than it is written; on the node:
    it changed a label of the node software."""
    OPERAND_LABELS_WRONG = "GPUOperandLabelsWrong"
    """On the node: a label of another client contradicts its operands, or several NVIDIADrivers select it; it stays."""
    ROLLOUT_PASSES_DEAD_NODES = "GPURolloutPassesDeadNodes"
    """On a DaemonSet of ours: its roll-out goes past nodes that are not ready; the note names them."""
    SCHEDULER_RESTARTED = "GPUSchedulerRestarted"
    """On kube-scheduler's Deployment: the CAs that it trusts changed."""

    CACHE_NOT_EXTRACTED = "GPUCacheNotExtracted"
    """On the kernel cache: a node could not pull, extract or remove it; once for each text."""

    NODE_REQUESTED = "GPUNodeRequested"
    """On pods that wait for units: a node is asked for."""
    NODE_LAUNCHED = "GPUNodeLaunched"
    """On the same pods: the NodeClaim of their node exists."""
    NODE_REGISTERED = "GPUNodeRegistered"
    """On the same pods: the Node exists, and its devices are not in the pool yet."""
    NODE_READY = "GPUNodeReady"
    """On the same pods: the devices of the node are in the pool."""
    NODE_FAILED = "GPUNodeFailed"
    """On the same pods, and on the pool: no node comes of the request."""
    NODE_REQUEST_BLOCKED = "GPUNodeRequestBlocked"
    """On pods that wait: no node is asked for, because of a limit, the budget or the shapes, or because none would help."""
    NODE_REQUEST_CANCELLED = "GPUNodeRequestCancelled"
    """On the pool: nothing waits for a requested node any more."""
    NODE_WITHOUT_DEVICES = "GPUNodeWithoutDevices"
    """On the pool: a node was registered and reported no devices, so its NodeClaim is deleted."""
    NODE_WITH_FEWER_DEVICES = "GPUNodeWithFewerDevices"
    """On the pool: a node came with fewer usable units than its shape promises, which is a failure of the shape."""
    FOREIGN_NODE_CLAIM = "GPUForeignNodeClaim"
    """On the pool: a NodeClaim has the label of a request that this control plane did not make."""
    SCALING_MISCONFIGURED = "GPUScalingMisconfigured"
    """On the pool: its NodePool or its backend cannot be used."""
    BUDGET_EXHAUSTED = "GPUBudgetExhausted"
    """On the pool: no node is added before the next hour or day."""

    KERNEL_CACHE_RESOLVED = "GPUKernelCacheResolved"
    """On the GKMCache or ClusterGKMCache: its image is a digest, or another one, which nodes pull now."""
    KERNEL_CACHE_FAILED = "GPUKernelCacheFailed"
    """On the GKMCache or ClusterGKMCache: its image is not proven, or a node could not extract it."""


class RefusalReason(Enum):
    """Reason of a refusal at admission: the label of `gpu_refusals_total`, the start of the message."""

    MALFORMED_REQUEST = "MalformedRequest"
    """The review or its object cannot be read."""
    BAD_QUANTITY = "BadQuantity"
    """A container requests no whole number of units, or a size that the pool does not divide a device into; or a RuntimeClass has units."""
    MIXED_POOLS = "MixedPoolRequest"
    """The pod requests units of several pools."""
    TOO_LARGE = "TooLarge"
    """The pod is larger than one decision may cost, for any user."""
    POOL_NOT_FOUND = "PoolNotFound"
    """No pool serves the resource that the pod requests."""
    POOL_TERMINATING = "PoolTerminating"
    """The pool is being deleted."""
    POOL_IN_MAINTENANCE = "PoolInMaintenance"
    """The pool's allocation is being changed, or others partition its devices; it takes no new pods meanwhile."""
    ACCESS_DENIED = "AccessDenied"
    """No rule of `spec.access` lets the pod use the pool."""
    POD_BASELINE = "PodBaseline"
    """The pod could reach devices that it was not given, and the pool has `podBaseline: Deny`."""
    EXCEEDS_CAPACITY = "ExceedsCapacity"
    """No node of the pool could ever have so many units, or so many that belong together."""
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    """Too few units are free, and the pool has `whenExhausted: Reject`."""
    NODE_PRESET = "NodePreset"
    """The pod names its node, which bypasses the scheduler."""
    CONFLICTING_SPEC = "ConflictingSpec"
    """The pod's labels, node selector or affinity contradict the pool's."""
    NOT_ADMITTED = "NotAdmitted"
    """A pool pod reached validation without passing the mutating webhook."""
    FORGED_ANNOTATION = "ForgedAnnotation"
    """An annotation that only the control plane writes was written by another client."""
    NOT_READY = "NotReady"
    """The server is starting; the request can be repeated."""
    INVALID_POOL = "InvalidPool"
    """A field of a GPUPool breaks a rule."""
    POOL_NAME_TAKEN = "PoolNameTaken"
    """Another pool serves the resource of the new one."""
    INVALID_ASSIGNMENT = "InvalidAssignment"
    """The pool that the annotation of a GPUDevice names cannot take the device."""
    INVALID_TAINT = "InvalidTaint"
    """The control plane's account sets a taint NoExecute that no pool with a device on the Node has."""
    INVALID_CACHE = "InvalidCache"
    """A field of a GKMCache or ClusterGKMCache is wrong."""
    IMAGE_UNUSABLE = "ImageUnusable"
    """The image of a cache does not exist, may not be read, or is no kernel cache."""
    IMAGE_NOT_VERIFIED = "ImageNotVerified"
    """No accepted signer has signed the image of a cache."""
    REGISTRY_UNAVAILABLE = "RegistryUnavailable"
    """The registry of a cache's image does not answer in time, or says that it cannot now."""


def node_refusal_text(refusal: "NodeRefusal", pool: "PoolName") -> str:
    """Return one line for `kubectl describe pod`: why the node cannot take the pod."""
    return f"GPU pool {pool}: {_node_fault(refusal)}"


def _node_fault(refusal: "NodeRefusal") -> str:
    match refusal.reason:
        case NodeReason.UNKNOWN_NODE:
            return "node is not known to the GPU control plane"
        case NodeReason.NODE_NOT_IN_POOL:
            return "node has no device of the pool"
        case NodeReason.NODE_TOO_SMALL:
            return f"{refusal.requested} requested, node has {refusal.total}" + (
                f", {refusal.unhealthy} of them unhealthy" if refusal.unhealthy else ""
            )
        case NodeReason.INSUFFICIENT_UNITS:
            return (
                f"{refusal.requested} requested, {refusal.free} free "
                f"({_taken_count(refusal)} of {refusal.total})"
            )
        case NodeReason.UNACCOUNTED_PODS:
            return "node runs a pod with unknown devices"
        case NodeReason.POOL_CHANGING:
            return (
                "pool is in maintenance and takes no pods until that is over"
                f" ({refusal.used} of {refusal.total} used on this node)"
            )
        case NodeReason.POOL_ENDING:
            return "pool is being deleted"
        case _:
            figures = {key: getattr(refusal, key) for key in refusal.__struct_fields__}
            return _FAULTS[refusal.reason].format(**figures, taken=_taken_count(refusal))


_FAULTS: Final = {
    NodeReason.NODE_LEAVING: "node is being deleted, or its autoscaler is about to remove it",
    NodeReason.NODE_STARTING: (
        "node is starting, and its units are for the pods that it was added for"
    ),
    NodeReason.DRIVER_UPGRADE: (
        "the driver of the node is being upgraded, and its devices take no new pods until that is over"
    ),
    NodeReason.NOT_ALIGNED: (
        "{requested} requested and {free} free, but of these at most {largest} are on one NUMA node or connected by"
        " NVLink, which the pool requires"
    ),
    NodeReason.CANNOT_ALIGN: (
        "{requested} requested, but the pool requires one NUMA node or NVLink between all of the pod's devices, and"
        " node has at most {largest} so"
    ),
    NodeReason.NO_DEVICE_WITH_CAPACITY: (
        "{requested} requested and {free} free, but at most {largest} of one device; in this pool a container gets"
        " its slices on one device, or whole devices"
    ),
    NodeReason.TOO_FEW_DEVICES: (
        "{requested} requested, node has {total}, but in this pool a container gets its slices on one device, or whole"
        " devices, and node has too few devices for that"
    ),
    NodeReason.KUBELET_WOULD_REJECT: (
        "{requested} requested and {free} free, but kubelet would reject the pod: its topologyManagerPolicy is {policy},"
        " and at most {largest} are free on one NUMA node"
    ),
    NodeReason.KUBELET_REJECTS: (
        "{requested} requested, but kubelet rejects the pod on this node: its topologyManagerPolicy is {policy}, and one"
        " NUMA node has at most {largest}"
    ),
    NodeReason.KUBELET_CHOOSES: (
        "{requested} requested and {free} free, but kubelet, which aligns devices with other resources of this node,"
        " would choose a NUMA node on which not all containers get the devices that they need"
    ),
    NodeReason.CACHE_FITS_NO_DEVICE: (
        "{incompatibility.subject} no device of the pool on this node: {incompatibility.reason}"
    ),
    NodeReason.CACHE_FITS_TOO_FEW: (
        "{requested} requested, but {incompatibility.subject} only devices with {total} units of the pool on this node:"
        " {incompatibility.reason}"
    ),
    NodeReason.INSUFFICIENT_FITTING_UNITS: (
        "{requested} requested, {free} free ({taken} of {total}) on the devices of the pool on this node that"
        " {incompatibility.subject}: {incompatibility.reason}"
    ),
}
"""Texts of nodes with enough free units, which pods cannot have or not together."""


def too_large_text(found: "TooLarge") -> str:
    """Return which part of a pod is too large, its size, and the limit."""
    match found.measure:
        case Measure.CONTAINERS:
            return (
                f"spec.containers and spec.initContainers have {found.found} containers, at most"
                f" {found.bound} are allowed"
            )
        case Measure.LISTED_UNITS:  # pragma: no branch  # mypy proves that no case is missing
            return (
                f"the containers request {found.found} units in total, at most {found.bound} are"
                " allowed: let fewer init containers request units"
            )


def _taken_count(refusal: "NodeRefusal") -> str:
    parts = [f"{refusal.used} used"]
    if refusal.reserved:
        parts.append(f"{refusal.reserved} reserved")
    if refusal.unhealthy:
        parts.append(f"{refusal.unhealthy} unhealthy")
    return ", ".join(parts)

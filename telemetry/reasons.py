"""Reasons that people and machines read: events, refusals at admission, refusals of a node.

The only home of such strings. Event reasons and refusal reasons are PascalCase; texts name the
object and what to do.
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


class EventReason(Enum):
    """`reason` of the Events that we write."""

    RESERVATION_EXPIRED = "GPUReservationExpired"
    """On the pool and on the pod: a hold ran out before the pod was bound."""
    POD_UNACCOUNTED = "GPUPodUnaccounted"
    """On the pod: it runs on units that nobody knows, so its node takes no more pods of the pool."""

    UNITS_HELD_TWICE = "GPUUnitsHeldTwice"
    """On each of two pods that are bound with one unit: only a Binding around us can do that."""

    DEVICES_SUBSTITUTED = "GPUDevicesSubstituted"
    """On the pod: a container gets other devices than it was bound with, since those are gone or taken."""
    DEVICES_REFUSED = "GPUDevicesRefused"
    """On the pod: kubelet rejects it, since nothing may be given to it without sharing what is not to be."""
    ALLOCATION_MISMATCH = "GPUAllocationMismatch"
    """On the pod: kubelet gave it other devices than it was bound with; the books follow kubelet."""

    DEVICE_PARTITIONED = "GPUPartitioned"
    """On the device: it is cut into instances as its pool wants it, or is whole again."""
    PARTITIONING_BLOCKED = "GPUPartitioningHeldUp"
    """On the device: it is to be cut anew, and something runs on it, or the driver refuses."""

    DEVICE_DETECTED = "GPUDeviceDetected"
    """On the device: the inventory found it. A whole node of them at once is one event, on its inventory."""
    DEVICE_REMOVED = "GPUDeviceRemoved"
    """On the node: a card is gone, and its device with it."""
    DEVICE_FAULTED = "GPUDeviceFaulted"
    """On the device, and on each pod that runs there."""
    DEVICE_RECOVERED = "GPUDeviceRecovered"
    DUPLICATE_UUID = "GPUDuplicateUUID"
    """On both devices that claim one UUID."""
    SOURCE_SILENT = "GPUSourceSilent"
    """On the node's inventory: facts are kept, and marked stale."""
    BAD_FEATURE = "GPUBadFeature"
    """On the node's inventory: a label or attribute has a value that makes no sense."""

    NODE_WITHOUT_POOL = "GPUNodeWithoutPool"
    """On the node's inventory: it is ready for pooling, and none of its devices is in a pool."""
    UNASSIGNED_DEVICE = "GPUUnassignedDevice"
    """On the device: it is ready, and no pool wants it."""
    ANNOTATION_MISMATCH = "GPUAnnotationMismatch"
    """On the device: the pool that its annotation names does not take it."""
    DEVICE_ASSIGNED = "GPUDeviceAssigned"
    DEVICE_RELEASED = "GPUDeviceReleased"
    DEVICE_DRAINING = "GPUDeviceDraining"
    ASSIGNMENT_CONFLICT = "GPUAssignmentConflict"
    """On the device and on both pools: another pool owns a device that this one wants."""

    POOL_RECONFIGURED = "GPUPoolReconfigured"
    """On the pool: its new allocation is in effect."""
    MAINTENANCE = "Maintenance"
    """On the pool: it takes no new pods until no unit is in use."""
    MISCONFIGURED = "Misconfigured"
    POOL_TERMINATING = "GPUPoolTerminating"
    """On the pool: pods hold up its deletion."""
    CAPACITY_LOW = "GPUPoolCapacityLow"


class RefusalReason(Enum):
    """Why admission refused; the label of `gpu_refusals_total` and the start of the message."""

    MALFORMED_REQUEST = "MalformedRequest"
    BAD_QUANTITY = "BadQuantity"
    MIXED_POOLS = "MixedPoolRequest"
    TOO_LARGE = "TooLarge"
    """More than one decision may cost, whoever asks."""
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_TERMINATING = "PoolTerminating"
    POOL_IN_MAINTENANCE = "PoolInMaintenance"
    ACCESS_DENIED = "AccessDenied"
    EXCEEDS_CAPACITY = "ExceedsCapacity"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    NODE_PRESET = "NodePreset"
    CONFLICTING_SPEC = "ConflictingSpec"
    NOT_ADMITTED = "NotAdmitted"
    """A pool pod reached validation without having been mutated by us."""
    FORGED_ANNOTATION = "ForgedAnnotation"
    NOT_READY = "NotReady"
    INVALID_POOL = "InvalidPool"
    POOL_NAME_TAKEN = "PoolNameTaken"
    INVALID_ASSIGNMENT = "InvalidAssignment"


def node_refusal_text(refusal: "NodeRefusal", pool: "PoolName") -> str:
    """Say in one line why a node cannot take a pod; shown by `kubectl describe pod`."""
    match refusal.reason:
        case NodeReason.UNKNOWN_NODE:
            return f"GPU pool {pool}: node unknown"
        case NodeReason.NODE_NOT_IN_POOL:
            return f"GPU pool {pool}: no device here"
        case NodeReason.NODE_TOO_SMALL:
            return f"GPU pool {pool}: {refusal.wanted} wanted, the node has {refusal.total}" + (
                f", {refusal.unhealthy} of them unhealthy" if refusal.unhealthy else ""
            )
        case NodeReason.INSUFFICIENT_UNITS:
            return (
                f"GPU pool {pool}: {refusal.wanted} wanted, {refusal.free} free "
                f"({_taken(refusal)} of {refusal.total})"
            )
        case NodeReason.UNACCOUNTED_PODS:
            return f"GPU pool {pool}: a pod runs here on devices that nobody knows"
        case NodeReason.POOL_CHANGING:
            return (
                f"GPU pool {pool}: in maintenance, no pod is placed until its new allocation is in effect"
                f" ({refusal.used} of {refusal.total} used here)"
            )
        case NodeReason.POOL_ENDING:
            return f"GPU pool {pool}: being deleted"


def too_large_text(found: "TooLarge") -> str:
    """Say of what there is too much in a pod, how much, and how much is possible."""
    match found.measure:
        case Measure.CONTAINERS:
            return (
                f"spec.containers and spec.initContainers have {found.found} containers, at most"
                f" {found.bound} are possible"
            )
        case Measure.LISTED_UNITS:  # pragma: no branch  # mypy proves that no case is missing
            return (
                f"the containers ask for {found.found} units in sum, at most {found.bound} are possible:"
                " let fewer init containers ask for them"
            )


def _taken(refusal: "NodeRefusal") -> str:
    parts = [f"{refusal.used} used"]
    if refusal.held:
        parts.append(f"{refusal.held} held")
    if refusal.unhealthy:
        parts.append(f"{refusal.unhealthy} unhealthy")
    return ", ".join(parts)

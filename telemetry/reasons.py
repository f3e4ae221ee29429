"""Reasons that people and machines read: events, refusals at admission, refusals of a node.

The only home of such strings. Event reasons and refusal reasons are PascalCase; texts name the
object and what to do.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

from pool.refusal import NodeReason

if TYPE_CHECKING:
    from api.names import PoolName
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


class RefusalReason(Enum):
    """Why admission refused; the label of `gpu_refusals_total` and the start of the message."""

    MALFORMED_REQUEST = "MalformedRequest"
    BAD_QUANTITY = "BadQuantity"
    MIXED_POOLS = "MixedPoolRequest"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_TERMINATING = "PoolTerminating"
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


def _taken(refusal: "NodeRefusal") -> str:
    parts = [f"{refusal.used} used"]
    if refusal.held:
        parts.append(f"{refusal.held} held")
    if refusal.unhealthy:
        parts.append(f"{refusal.unhealthy} unhealthy")
    return ", ".join(parts)

"""Texts of explanations (`pool.what_if`) that name no pod: for conditions, Events, and the head of a page."""

from typing import TYPE_CHECKING, Final

from api.names import CAPACITY_GATE
from api.text import units
from pool.model import Capacity
from pool.what_if.explanation import HAVE_UNITS, UnitWaitReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pool.what_if.explanation import Explanation

CACHES_NOT_READ: Final = "whether the pod's kernel caches fit devices is unknown"


def wait_summary(explanation: "Explanation") -> str:
    """Return why a pod waits, in one line of at most 300 characters beside the names of pool, resource and fields.

    Where a node is said to take the pod, now or after a change, what is not weighed is named.
    """
    if explanation.reason is UnitWaitReason.POOL_NOT_FOUND:
        return f"no GPUPool serves {explanation.resource}: correct the name, or create the pool"
    requested = f"{units(explanation.units)} of pool {explanation.pool} requested"
    promises = explanation.remedies or explanation.reason in HAVE_UNITS
    unweighed = explanation.unweighed if promises else ()
    return "; ".join((f"{requested}, {_state(explanation)}", *unweighed_texts(unweighed)))


def unweighed_texts(fields: "Sequence[str]") -> "Iterator[str]":
    """Yield which fields of a pod were not weighed; nothing where all were."""
    if fields:
        yield f"not checked, Kubernetes decides: {', '.join(fields)}"


def _state(explanation: "Explanation") -> str:
    match explanation.reason:
        case UnitWaitReason.UNITS_AVAILABLE:
            return (
                "and a node has them: the pod waits for something else than units, see the message of its condition"
                " PodScheduled"
            )
        case UnitWaitReason.RESERVATION_PENDING:
            return (
                "and a node has them: waiting pods get them by priority and age, and the pod loses its gate"
                f" {CAPACITY_GATE} with them"
            )
        case UnitWaitReason.SCHEDULING_GATED:
            return "but the pod has scheduling gates that are not this control plane's: their owner removes them"
        case UnitWaitReason.POOL_CLOSED:
            cause = explanation.drift or (
                "it is being deleted, or waits for its new allocation to be in effect, see"
                f" `kubectl describe gpupool {explanation.pool}`"
            )
            return f"but the pool allocates none: {cause}"
        case UnitWaitReason.POD_TOO_LARGE:
            return f"but no node can ever serve that: {_figures(explanation)}, the largest node has {explanation.largest_node}"
        case UnitWaitReason.CACHES_FIT_NO_DEVICE:
            return "but a kernel cache that the pod mounts does not fit enough devices of any node that it may go to"
        case UnitWaitReason.NODES_EXCLUDED:
            return (
                f"{_figures(explanation)}; but the nodes that could give them are cordoned, not ready, short of CPU, memory"
                " or places for pods, or excluded by the pod's node selector, affinity, spreading or tolerations, or by other pods"
            )
        case _:
            return f"{_figures(explanation)}{_obstacle(explanation)}"


def _obstacle(explanation: "Explanation") -> str:
    match explanation.reason:
        case UnitWaitReason.UNITS_NOT_ALIGNED:
            return "; but not on devices as the pool's placement rules or kubelet's topology policy demand"
        case UnitWaitReason.NODES_CLOSED:
            return "; nodes with enough units are starting, are being removed, or run a pod on unknown devices"
        case _:
            return ""


def _figures(explanation: "Explanation") -> str:
    capacity = explanation.capacity or Capacity()
    if not capacity.total:
        return "the pool has no units"
    free = f"{explanation.free} of {capacity.total} are free"
    if not explanation.free:
        return free
    return f"{free}, at most {explanation.largest_free} on one node"

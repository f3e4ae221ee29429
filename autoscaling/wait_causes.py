"""Why a waiting pod is not a matter of nodes: nothing is asked for, and its Event says what it waits for."""

from typing import TYPE_CHECKING, Final

from api.status_conditions import format_time, parse_time
from autoscaling.scaling_model import PodWait, WaitReason
from pool.refusal import NodeReason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from api.names import NodeName
    from autoscaling.node_selections import NodeSelection
    from pool.model import NodeFacts, PodFacts, PoolFacts

_SCHEDULED_WITHIN_S: Final = 60.0
"""kube-scheduler tries a pod again after each change of a node or pod, and after a minute at the latest for most."""
_GATED: Final = PodWait(
    WaitReason.OTHER_GATES,
    "the pod has scheduling gates of a queue or quota, which admits it first: ask the owner of the gates",
)
_PINNED: Final = PodWait(
    WaitReason.PINNED,
    "the pod's node selector, required affinity or volumes name single nodes, and a new node would be another one: "
    "wait until units are free there, or take kubernetes.io/hostname and metadata.name from the pod",
)


def cause_of(
    pod: "PodFacts", selection: "NodeSelection", nodes: "Mapping[NodeName, NodeFacts]"
) -> PodWait | None:
    """Return why no node would help the pod, by what is known of the pod alone.

    Args:
        pod: a pod that waits.
        selection: its node selector, affinity and tolerations.
        nodes: the nodes of the cluster.
    """
    if pod.is_gated:
        return _GATED
    nominated = nodes.get(pod.nominated_node) if pod.nominated_node is not None else None
    if nominated is not None and nominated.is_placeable:
        return PodWait(
            WaitReason.PREEMPTING,
            f"kube-scheduler evicts pods from node {nominated.name} for it: wait until these have ended",
        )
    if pod.selection is not None and pod.selection.undecided:
        return PodWait(WaitReason.PLACE_UNDECIDED, pod.selection.undecided)
    return _PINNED if selection.is_pinned else None


def closed_cause(pool: "PoolFacts") -> PodWait | None:
    """Return why nothing is asked for, for any pod of a pool that allocates no units; None where it does."""
    match pool.closed:
        case None:
            return None
        case NodeReason.POOL_ENDING:
            text = f"pool {pool.name} is being deleted: use another pool"
        case _:
            cause = pool.drift or "its pods wait until the new allocation is in effect"
            text = f"pool {pool.name} is in maintenance: {cause}"
    return PodWait(WaitReason.POOL_CLOSED, text)


def upgrade_cause(pod: "PodFacts", node: "NodeName", until: "dt.datetime") -> PodWait:
    """Return that a pod waits for units that an upgrade is about to give back."""
    return PodWait(
        WaitReason.DRIVER_UPGRADE,
        f"{pod.demand.units} units of {pod.demand.resource} on node {node} return after the upgrade of its driver, whose "
        f"present step ends by {format_time(until)}: wait; nodes are asked for if it fails, and status.upgrade of the "
        "ClusterPolicy says how far it is",
    )


def other_cause(pod: "PodFacts", node: "NodeName", now: "dt.datetime") -> PodWait | None:
    """Return that something else than devices keeps a pod waiting which fits free units of a node.

    None for a gated pod, which is about to get them, and for one that kube-scheduler may not have tried again yet.
    """
    created = parse_time(pod.created)
    if pod.awaits_capacity or created is None:
        return None
    if abs((now - created).total_seconds()) <= _SCHEDULED_WITHIN_S:
        return None
    return PodWait(
        WaitReason.NOT_DEVICES,
        f"{pod.demand.units} units of {pod.demand.resource} are free, as on node {node}, and kube-scheduler does not "
        "bind the pod: its own Events (reason FailedScheduling) say what it lacks, such as CPU, memory or volumes",
    )

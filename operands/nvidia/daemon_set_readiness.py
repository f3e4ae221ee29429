"""Readiness of a DaemonSet of node software, with the nodes that miss it and why. Pure.

The status of a DaemonSet counts pods of its last template whatever its strategy is. Where it does not say that all of
them are there, pods are examined: to name nodes, and for strategy OnDelete, since the pods of a driver are replaced one
by one, against the newest ControllerRevision.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from api.text import truncate
from operands.rollout import is_held, unready_reason

Json = Mapping[str, Any]

MAX_NODES: Final = 3
"""Nodes that a message names."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPod:
    """What counts of a pod of a DaemonSet."""

    node: str
    owner: str = ""
    """Uid of the DaemonSet; empty: it has none any more, or none yet."""
    revision: str = ""
    """Label `controller-revision-hash`."""
    is_ready: bool = False
    """It runs, all of its containers are ready, and it is not being deleted."""
    reason: str = ""
    """Why it is not ready."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSetReadiness:
    """How far a DaemonSet is."""

    name: str
    nodes_ready: int = 0
    nodes_total: int = 0
    reason: str = ""
    """Empty: ready."""
    missing: tuple[str, ...] = ()
    """The first nodes that are not ready, each with its reason, sorted."""
    missing_total: int = 0
    """Nodes that are not ready."""

    @property
    def is_ready(self) -> bool:
        return not self.reason

    @property
    def text(self) -> str:
        """Return what is missing, with the first nodes."""
        if self.is_ready:
            return ""
        named = "; ".join(self.missing)
        more = self.missing_total - len(self.missing)
        nodes = f"; {named}" if named else ""
        return f"DaemonSet {self.name}: {self.reason}{nodes}" + (
            f"; and {more} more nodes" if more > 0 else ""
        )


def by_status(live: Json) -> DaemonSetReadiness:
    """Return what the DaemonSet's own status says; it names no node."""
    status = live.get("status") or {}
    total = status.get("desiredNumberScheduled", 0)
    updated, available = (
        status.get(field, 0) for field in ("updatedNumberScheduled", "numberAvailable")
    )
    reason = unready_reason(live)
    if not reason and total and updated < total and not is_held(live):
        # A driver's pods are replaced by its upgrade.
        reason = f"{updated} of {total} nodes have a pod of the last template"
    if not reason and (away := status.get("numberUnavailable", 0)):
        reason = f"{total - away} of {total} nodes have an available pod"
    return DaemonSetReadiness(
        name=live["metadata"]["name"],
        nodes_ready=total if not reason else min(updated, available, total),
        nodes_total=total,
        reason=reason,
    )


def selected_nodes(live: Json, labels_by_node: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the nodes that the DaemonSet's nodeSelector selects."""
    selector = live["spec"]["template"]["spec"].get("nodeSelector") or {}
    return [
        name
        for name, labels in labels_by_node.items()
        if all(labels.get(key) == value for key, value in selector.items())
    ]


def by_pods(
    live: Json, pods: Iterable[DaemonPod], *, newest_revision: str, nodes: Sequence[str]
) -> DaemonSetReadiness:
    """Return the readiness by pods, of a DaemonSet whose status does not say that it is ready.

    Args:
        live: the DaemonSet.
        pods: those that its selector finds, of any owner.
        newest_revision: hash of its newest ControllerRevision; empty where there is none yet.
        nodes: those that it selects.
    """
    reported, uid = by_status(live), live["metadata"]["uid"]
    on_node = {pod.node: pod for pod in pods if pod.owner == uid}
    # Nodes that it selects and does not want, as for a taint, miss nothing.
    is_everywhere = 0 < reported.nodes_total <= len(on_node)
    checked = on_node.keys() if is_everywhere else {*nodes, *on_node}
    newest = None if is_held(live) else newest_revision
    faults = {node: _fault(on_node.get(node), newest) for node in checked}
    missing = sorted(node for node, fault in faults.items() if fault)
    ready = len(faults) - len(missing)
    is_on_delete = live["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
    is_observed = (live.get("status") or {}).get("observedGeneration", 0) >= live["metadata"].get(
        "generation", 0
    )
    if is_on_delete and is_observed and newest_revision and not missing and ready:
        return DaemonSetReadiness(name=reported.name, nodes_ready=ready, nodes_total=ready)
    return DaemonSetReadiness(
        name=reported.name,
        nodes_ready=reported.nodes_ready,
        nodes_total=reported.nodes_total,
        reason=reported.reason,
        missing=tuple(f"node {node}: {faults[node]}" for node in missing[:MAX_NODES]),
        missing_total=len(missing),
    )


def _fault(pod: DaemonPod | None, newest_revision: str | None) -> str:
    if pod is None:
        return "no pod"
    if not pod.is_ready:
        return truncate(pod.reason) or "its pod is not ready"
    return "" if newest_revision in {None, pod.revision} else "its pod is of an earlier version"

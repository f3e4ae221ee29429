"""Rolling updates of DaemonSets in a cluster with dead nodes.

Kubernetes counts the pod of a node that is not ready as unavailable. Such nodes use up `maxUnavailable`, and no pod of the
others is replaced: one dead node stops the roll-out over ten nodes. So they are added to it. A DaemonSet whose pods overlap
(`maxSurge`) is not concerned.
"""

from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.foreign.core import Affinity
from api.text import listed
from kube.batches import steps
from kube.event_recorder import ObjectReference
from kube.resources import DAEMON_SETS
from manifests.node.device_plugin import signed
from operands.upgrade.parameters import NodeLimit
from pool.model import Constraints
from telemetry.metrics import DAEMON_SET_OUTDATED
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kube.event_recorder import EventRecorder
    from pool.model import NodeFacts

Json = dict[str, Any]

ACTION: Final = "RollOut"
"""Action of events."""
_BATCH: Final = 500
"""Nodes that one compiled affinity, which bounds its comparisons, is asked for."""


def passing_dead_nodes(objects: "Iterable[Json]", nodes: "Sequence[NodeFacts]") -> list[Json]:
    """Return signed objects, of which the DaemonSets that roll out allow for the nodes that are not ready.

    Args:
        objects: what is desired.
        nodes: all nodes.
    """
    return [_passing(body, nodes) for body in objects]


@final
class Rollouts:
    """Shows how far roll-outs are: a gauge for each DaemonSet, and an Event that names the dead nodes it goes past."""

    def __init__(self, recorder: "EventRecorder") -> None:
        self._recorder = recorder
        self._reported: dict[str, str] = {}
        # name of a DaemonSet -> dead nodes

    def show(self, live: Json, nodes: "Sequence[NodeFacts]") -> None:
        """Show a DaemonSet by its status; an Event for each list of dead nodes while available pods wait for their replacement."""
        meta, status = live["metadata"], live.get("status") or {}
        waiting = status.get("numberAvailable", 0) - status.get("updatedNumberScheduled", 0)
        DAEMON_SET_OUTDATED.labels(meta["name"]).set(max(0, waiting))
        dead = listed(_dead_nodes(live, nodes)) if waiting > 0 else ""
        if dead and dead != self._reported.get(meta["name"]):
            self._recorder.warning(
                ObjectReference(
                    api_version=DAEMON_SETS.api_version,
                    kind=DAEMON_SETS.kind,
                    name=meta["name"],
                    namespace=meta["namespace"],
                    uid=meta["uid"],
                ),
                EventReason.ROLLOUT_PASSES_DEAD_NODES,
                f"the roll-out goes past nodes that are not ready, which get its pods once they are: {dead}. Repair them,"
                " or delete their Node objects: kubectl rollout status waits for them",
                action=ACTION,
            )
        self._reported[meta["name"]] = dead

    def forget(self, name: str) -> None:
        """A DaemonSet is gone."""
        DAEMON_SET_OUTDATED.remove(name)
        self._reported.pop(name, None)


def _limit(body: Json) -> NodeLimit | None:
    """Return how many nodes the roll-out may take at a time; None: it takes none away."""
    strategy = body.get("spec", {}).get("updateStrategy", {})
    limit = NodeLimit.parse(strategy.get("rollingUpdate", {}).get("maxUnavailable", 0))
    return limit if limit is not None and limit.amount else None


def _dead_nodes(body: Json, nodes: "Sequence[NodeFacts]") -> list[str]:
    """Return the nodes that are added to the limit of the roll-out."""
    dead = [node for node in nodes if not node.is_ready]
    if not dead or _limit(body) is None:
        return []
    return [node.name for node in _selected(body["spec"]["template"]["spec"], dead)]


def _passing(body: Json, nodes: "Sequence[NodeFacts]") -> Json:
    dead, limit = len(_dead_nodes(body, nodes)), _limit(body)
    if not dead or limit is None:
        return body
    strategy = body["spec"]["updateStrategy"]
    selected = _selected(body["spec"]["template"]["spec"], nodes)
    rolling = {**strategy["rollingUpdate"], "maxUnavailable": limit.of(len(selected)) + dead}
    spec = {**body["spec"], "updateStrategy": {**strategy, "rollingUpdate": rolling}}
    metadata = {**body["metadata"], "annotations": dict(body["metadata"]["annotations"])}
    return signed({**body, "metadata": metadata, "spec": spec})


def _selected(pod: Json, nodes: "Sequence[NodeFacts]") -> "list[NodeFacts]":
    affinity = msgspec.convert(pod.get("affinity"), Affinity | None)
    found: list[NodeFacts] = []
    for batch in steps(nodes, _BATCH):
        constraints = Constraints(node_selector=pod.get("nodeSelector"), affinity=affinity)
        found += (node for node in batch if constraints.select(node.name, node.labels))
    return found

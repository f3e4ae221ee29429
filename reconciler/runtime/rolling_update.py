"""Rolling updates of DaemonSets in a cluster with nodes that are not ready.

Kubernetes counts the pod of a node that is not ready as unavailable. Such nodes use up `maxUnavailable`, and no pod of the
others is replaced: one such node stops the roll-out over ten nodes. So they are added to it while pods wait to be
replaced. At any other time the number does not matter, and nodes that join, which are not ready for a while, change
nothing. A DaemonSet whose pods overlap (`maxSurge`) is not concerned.
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
    from collections.abc import Iterable, Mapping, Sequence

    from kube.event_recorder import EventRecorder
    from pool.model import NodeFacts

Json = dict[str, Any]

ACTION: Final = "RollOut"
"""Action of events."""
_BATCH: Final = 500
"""Nodes that one compiled affinity, which bounds its comparisons, is asked for."""


def allowing_for_unready_nodes(
    objects: "Iterable[Json]", nodes: "Sequence[NodeFacts]", *, live: "Mapping[str, Json]"
) -> list[Json]:
    """Return signed objects, in which the DaemonSets that roll out allow for the nodes that are not ready.

    Args:
        objects: what is desired.
        nodes: all nodes.
        live: the DaemonSets that there are, by name.
    """
    return [
        _allowing_for_unready(body, nodes, live.get(body["metadata"]["name"])) for body in objects
    ]


@final
class Rollouts:
    """Reports roll-outs: a gauge for each DaemonSet, and an Event that names the nodes that are not ready."""

    def __init__(self, recorder: "EventRecorder") -> None:
        self._recorder = recorder
        self._reported: dict[str, str] = {}
        # name of a DaemonSet -> its nodes that are not ready

    def report(self, live: Json, nodes: "Sequence[NodeFacts]") -> None:
        """Report a DaemonSet by its status; an Event for each list of unready nodes while available pods wait for replacement."""
        meta, status = live["metadata"], live.get("status") or {}
        waiting = status.get("numberAvailable", 0) - status.get("updatedNumberScheduled", 0)
        DAEMON_SET_OUTDATED.labels(meta["name"]).set(max(0, waiting))
        unready = listed(_unready_nodes(live, nodes)) if waiting > 0 else ""
        if unready and unready != self._reported.get(meta["name"]):
            self._recorder.warning(
                ObjectReference(
                    api_version=DAEMON_SETS.api_version,
                    kind=DAEMON_SETS.kind,
                    name=meta["name"],
                    namespace=meta["namespace"],
                    uid=meta["uid"],
                ),
                EventReason.ROLLOUT_PASSES_DEAD_NODES,
                f"the roll-out goes past nodes that are not ready, which get its pods once they are: {unready}. Repair them,"
                " or delete their Node objects: kubectl rollout status waits for them",
                action=ACTION,
            )
        self._reported[meta["name"]] = unready

    def forget(self, name: str) -> None:
        """Drop the gauge of a DaemonSet that is gone."""
        DAEMON_SET_OUTDATED.remove(name)
        self._reported.pop(name, None)


def _limit(body: Json) -> NodeLimit | None:
    """Return how many nodes the roll-out may take at a time; None: it takes none away."""
    strategy = body.get("spec", {}).get("updateStrategy", {})
    limit = NodeLimit.parse(strategy.get("rollingUpdate", {}).get("maxUnavailable", 0))
    return limit if limit is not None and limit.amount else None


def _rolls_out(live: Json) -> bool:
    """Say whether a pod is not of the present template; one that a node that joins has yet to get is no such pod."""
    status = live.get("status") or {}
    return bool(status.get("currentNumberScheduled", 0) > status.get("updatedNumberScheduled", 0))


def _unready_nodes(body: Json, nodes: "Sequence[NodeFacts]") -> list[str]:
    """Return the nodes that are added to the limit of the roll-out."""
    unready = [node for node in nodes if not node.is_ready]
    if not unready or _limit(body) is None:
        return []
    return [node.name for node in _selected(body["spec"]["template"]["spec"], unready)]


def _allowing_for_unready(body: Json, nodes: "Sequence[NodeFacts]", live: Json | None) -> Json:
    limit = _limit(body)
    if limit is None or live is None or not _rolls_out(live):
        return body
    selected = _selected(body["spec"]["template"]["spec"], nodes)
    unready = sum(not node.is_ready for node in selected)
    number = limit.of(len(selected)) + unready
    present = live["spec"]["updateStrategy"].get("rollingUpdate", {}).get("maxUnavailable")
    if isinstance(present, int) and number <= present <= 2 * number:
        number = present  # it is enough: nodes come and go during a roll-out, too
    elif not unready:
        return body
    strategy = body["spec"]["updateStrategy"]
    if number == strategy["rollingUpdate"]["maxUnavailable"]:
        return body
    rolling = {**strategy["rollingUpdate"], "maxUnavailable": number}
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

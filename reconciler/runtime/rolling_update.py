"""Rolling updates of DaemonSets in a cluster with dead nodes. Pure.

Kubernetes counts the pod of a node that is not ready as unavailable. Such nodes use up `maxUnavailable`, and no pod of the
others is replaced: one dead node stops the roll-out over ten nodes. So they are added to it. A DaemonSet whose pods overlap
(`maxSurge`) is not concerned.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.foreign.core import Affinity
from kube.batches import steps
from manifests.node.device_plugin import signed
from operands.upgrade.parameters import NodeLimit
from pool.model import Constraints

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pool.model import NodeFacts

Json = dict[str, Any]

_BATCH: Final = 500
"""Nodes that one compiled affinity, which bounds its comparisons, is asked for."""


def passing_dead_nodes(objects: "Iterable[Json]", nodes: "Sequence[NodeFacts]") -> list[Json]:
    """Return signed objects, of which the DaemonSets that roll out allow for the nodes that are not ready.

    Args:
        objects: what is desired.
        nodes: all nodes.
    """
    if all(node.is_ready for node in nodes):
        return list(objects)
    return [_passing(body, nodes) for body in objects]


def _passing(body: Json, nodes: "Sequence[NodeFacts]") -> Json:
    strategy = body.get("spec", {}).get("updateStrategy", {})
    limit = NodeLimit.parse(strategy.get("rollingUpdate", {}).get("maxUnavailable", 0))
    if limit is None or not limit.amount:
        return body
    selected = _selected(body["spec"]["template"]["spec"], nodes)
    dead = sum(not node.is_ready for node in selected)
    if not dead:
        return body
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

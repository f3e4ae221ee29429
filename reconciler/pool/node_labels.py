"""`node.pool-marks`: a label per pool, and the pools' taints, on every node that has a device of the pool.

Pods of a pool get a required affinity to its label, so that kube-scheduler considers only these nodes, and
tolerate its taints. Only labels with our prefix are changed, and only taints that an annotation of the node
lists as ours: others may have the same key. The list of taints is atomic at the API server, so it is written
whole, in its order, under the resourceVersion that was read.
"""

from typing import TYPE_CHECKING, Final, final

from api.foreign.core import NodeTaint
from api.meta import ObjectMeta
from api.names import (
    POOL_NODE_LABEL_PREFIX,
    POOL_TAINTS_ANNOTATION,
    PoolName,
    pool_node_label,
)
from kube.errors import Conflict, NotFound
from kube.event_source import EventSource
from kube.resources import NODES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from reconciler.pool.index_changes import NODES as INDEX_NODES
from reconciler.pool.validation_cache import validity_cache
from reconciler.runtime.expectations import Expectations

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from api.clock import Instant
    from api.foreign.core import Taint
    from api.names import NodeName
    from inventory.pools.validation import PoolValidityLookup
    from kube.client import KubeClient
    from pool.catalog import Catalog
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts


RBAC: Final = (PolicyRule(resources=("nodes",), verbs=("patch",)),)

CONFLICT_RETRY_S: Final = 0.5
"""The watch shows a node's newer object within this; asking earlier would conflict again."""

_TaintKey = tuple[str, str]
"""Key and effect: a node has one taint of each."""


def label_changes(labels: "Mapping[str, str]", desired: set[str]) -> dict[str, str | None]:
    """Return the merge patch that makes the desired keys the only ones with our prefix."""
    current = {key for key in labels if key.startswith(POOL_NODE_LABEL_PREFIX)}
    added: dict[str, str | None] = dict.fromkeys(sorted(desired - current), "")
    return {**added, **dict.fromkeys(sorted(current - desired))}


def taints_of(node: "NodeFacts", desired: "Iterable[Taint]") -> "tuple[list[NodeTaint], str]":
    """Return the taints that the node should have, and which of them are ours.

    A taint of another owner stays theirs, desired or not: it stays when the pool goes.
    """
    ours = set(_taint_keys(node.pool_taints))
    by_key: dict[_TaintKey, NodeTaint] = {}
    for taint in desired:
        by_key.setdefault((taint.key, taint.effect), _as_node_taint(taint))
    kept: list[NodeTaint] = []
    foreign: set[_TaintKey] = set()
    for taint in node.taints:
        place = (taint.key, taint.effect)
        if place not in ours:
            kept.append(taint)
            foreign.add(place)
        elif (want := by_key.get(place)) is not None:
            kept.append(taint if taint.value == want.value else want)
    there = {(taint.key, taint.effect) for taint in kept}
    kept += [taint for place, taint in by_key.items() if place not in there]
    own = sorted(by_key.keys() - foreign)
    return kept, ",".join(f"{key}:{effect}" for key, effect in own)


@final
class PoolNodeLabels:
    """Writes the pool labels and taints of one node."""

    def __init__(
        self,
        client: "KubeClient",
        index: "IndexFigures",
        catalog: "Catalog",
        *,
        validity_of: "PoolValidityLookup",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._index = index
        self._catalog = catalog
        self._validity_of = validity_of
        self._expected: Expectations[NodeName, dict[str, object]] = Expectations(now)

    async def reconcile(self, name: "NodeName") -> float | None:
        """Write the labels and taints of exactly the pools that have a device on the node.

        A node with a pool that cannot be read keeps those that it has.
        """
        node = self._index.nodes.get(name)
        if node is None or self._has_unread_pool(node):
            return None
        pools = [pool for pool in sorted(self._index.pools_on(name)) if self._may_label(pool, node)]
        patch = self._patch(node, pools)
        metadata = ObjectMeta(name=name, uid=node.uid, resource_version=node.resource_version)
        if not patch or patch == self._expected.unseen(name, metadata):
            return None
        try:
            await self._client.merge_patch(NODES, patch, name=name)
        except NotFound:
            return None
        except Conflict:
            return CONFLICT_RETRY_S
        self._expected.expect_newer(name, patch, metadata)
        return None

    def _may_label(self, pool: "PoolName", node: "NodeFacts") -> bool:
        """Say whether the pool may label the node; an invalid pool keeps the label that it has."""
        return self._validity_of(pool).is_valid or pool_node_label(pool) in node.labels

    def _has_unread_pool(self, node: "NodeFacts") -> bool:
        return any(
            pool_node_label(pool) in node.labels
            or node.name in self._index.state(pool).devices_by_node
            for pool in self._index.unread_pools
        )

    def _patch(self, node: "NodeFacts", pools: "list[PoolName]") -> dict[str, object]:
        metadata: dict[str, object] = {}
        patch: dict[str, object] = {}
        desired = {pool_node_label(pool) for pool in pools} | self._labels_before_devices(node)
        labels = label_changes(node.labels, desired)
        if labels:
            metadata["labels"] = labels
        taints, ours = taints_of(node, self._taints(pools))
        if ours != node.pool_taints:
            metadata["annotations"] = {POOL_TAINTS_ANNOTATION: ours or None}
        if tuple(taints) != node.taints:
            metadata["resourceVersion"] = node.resource_version
            patch["spec"] = {"taints": taints or None}
        return {"metadata": metadata, **patch} if metadata else patch

    def _labels_before_devices(self, node: "NodeFacts") -> set[str]:
        """Return the labels of pools that scale, of a node whose devices are still to come.

        Karpenter's NodePool has the label where Karpenter adds nodes for the pods themselves: without it on the node,
        Karpenter would add a second one.
        """
        if not node.is_starting:
            return set()
        labels = {key for key in node.labels if key.startswith(POOL_NODE_LABEL_PREFIX)}
        pools = (
            self._index.pool(PoolName(key.removeprefix(POOL_NODE_LABEL_PREFIX))) for key in labels
        )
        scaling = (pool for pool in pools if pool is not None and not pool.is_terminating)
        return {pool_node_label(pool.name) for pool in scaling if pool.scales}

    def _taints(self, pools: "Iterable[PoolName]") -> "list[Taint]":
        found = (self._catalog.pools.get(name) for name in pools)
        return [taint for pool in found if pool is not None for taint in pool.taints]


def _taint_keys(annotation: str) -> "Iterable[_TaintKey]":
    for part in annotation.split(","):
        key, colon, effect = part.rpartition(":")
        if colon:
            yield key, effect


def _as_node_taint(taint: "Taint") -> NodeTaint:
    return NodeTaint(key=taint.key, value=taint.value, effect=taint.effect)


@final
class PoolTaintChanges:
    """Publishes the pools whose taints or deletion changed."""

    def __init__(self, catalog: "Catalog") -> None:
        self._catalog = catalog
        self._seen: dict[PoolName, Hashable] = {}
        self.changes: EventSource[PoolName] = EventSource()

    def pool_changed(self, name: PoolName) -> None:
        """Compare a pool that is new, changed or gone."""
        pool = self._catalog.pools.get(name)
        now = None if pool is None else (pool.taints, pool.metadata.deletion_timestamp)
        if self._seen.pop(name, None) != now:
            self.changes.publish(name)
        if now is not None:
            self._seen[name] = now


def pool_taint_changes(context: ControllerContext) -> PoolTaintChanges:
    taints = PoolTaintChanges(context.catalog)
    context.follow(context.shared(validity_cache).pools, taints.pool_changed)
    return taints


def _nodes_of(context: ControllerContext, pool: PoolName) -> "Iterable[NodeName]":
    return list(context.index.state(pool).devices_by_node)


WORKERS: Final = 4
"""Nodes at a time: those that an autoscaler adds together wait for their labels together."""

SPEC: Final = ControllerSpec(
    name="node.pool-marks",
    rbac=RBAC,
    workers=WORKERS,
    triggers=(
        INDEX_NODES,
        Trigger(source=lambda context: context.shared(pool_taint_changes).changes, keys=_nodes_of),
        Trigger(source=lambda context: context.shared(validity_cache).changes, keys=_nodes_of),
    ),
    build=lambda context: (
        PoolNodeLabels(
            context.client,
            context.index,
            context.catalog,
            validity_of=context.shared(validity_cache).validity_of,
            now=context.now,
        ).reconcile
    ),
)

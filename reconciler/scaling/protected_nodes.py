"""`pool.kept-nodes`: nodes are kept from Karpenter's disruption, for a while.

Those are empty ones that minUnits and warmUnits need, and those whose driver is being upgraded.

A node gets Karpenter's annotation do-not-disrupt, and beside it one that says until when. It is renewed as long as
the node is needed, and removed once it is not, or once its time is over: a node that nothing renews, of a pool that
is gone, cannot stay for ever. An annotation of another client, which has no time beside it, is left alone.
"""

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Final, final

import structlog

from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION, NODE_POOL_LABEL
from api.meta import ObjectMeta
from api.names import KEEP_UNTIL_ANNOTATION, PoolName
from api.status_conditions import format_time, parse_time
from autoscaling.warm_nodes import keep_nodes
from kube.errors import Invalid, NotFound
from kube.resources import NODES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec, Trigger
from reconciler.pool.index_changes import NODES as NODE_CHANGES
from reconciler.pool.index_changes import index_changes
from reconciler.runtime.expectations import Expectations
from reconciler.scaling.view import scaling_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from api.clock import Instant
    from api.names import NodeName
    from kube.client import KubeClient
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts
    from reconciler.controller_spec import ControllerContext
    from reconciler.scaling.view import ScalingView

RBAC: Final = (PolicyRule(resources=("nodes",), verbs=("patch",)),)

KEPT_FOR_S: Final = 600.0
"""A server that is away for less loses no node."""
RENEWED_AFTER_S: Final = KEPT_FOR_S / 2
DELAY_S: Final = 1.0
"""A pod's reservation, commitment and binding follow each other within this."""
MOST_AHEAD_S: Final = KEPT_FOR_S / 2
"""Seconds by which the clock of the leader before may have been ahead: a later end was written by a clock that was
wrong."""
RECHECK_AFTER_S: Final = 60.0
NO_POOL: Final = PoolName("")
"""Key of nodes whose driver is being upgraded, whatever their pools, and of those whose pool is gone."""
VIEW_AGAIN_S: Final = 1.0
"""Seconds to wait at the start of a leadership term, while `pool.scaling` has not planned for the pool."""

_log = structlog.get_logger()


@final
class ProtectedNodes:
    """Writes the annotations of one pool's nodes at a time."""

    def __init__(
        self,
        client: "KubeClient",
        index: "IndexFigures",
        *,
        view: "ScalingView",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._index = index
        self._view = view
        self._now = now
        self._kept: dict[PoolName, frozenset[NodeName]] = {}
        # pool -> nodes that it needs
        self._expected: Expectations[NodeName, str] = Expectations(now)
        # what was written until the watch shows it; empty: the annotations were removed

    async def reconcile(self, name: "PoolName") -> float | None:
        """Keep the nodes that the pool needs, or all that are upgraded; and let those go that nothing needs any more."""
        pool, scaling = self._index.pool(name), self._view.pools.get(name)
        scales = pool is not None and pool.scales
        if scales and scaling is None:
            return VIEW_AGAIN_S
        if name and not scales and self._kept.get(name) == frozenset():
            return None
        nodes = self._index.state(name).nodes()
        kept: frozenset[NodeName] = frozenset()
        if scales and scaling is not None:
            permanent = {
                item.name for item in self._nodes(nodes) if NODE_POOL_LABEL not in item.labels
            }
            kept = keep_nodes(scaling.parameters, nodes, permanent=permanent) - permanent
        if name == NO_POOL:
            every = self._index.nodes.values()
            kept = frozenset(node.name for node in every if _is_upgraded(node))
        self._kept[name] = kept
        for node in self._nodes(sorted(kept)):
            await self._keep(node)
        for node in list(self._index.nodes.values()):
            if node.keep_until and not self._is_needed(node):
                await self._release(node)
        return RECHECK_AFTER_S if kept else None

    def _nodes(self, names: "Iterable[NodeName]") -> "list[NodeFacts]":
        found = (self._index.nodes.get(name) for name in names)
        return [node for node in found if node is not None]

    def _is_needed(self, node: "NodeFacts") -> bool:
        """Say whether the annotations stay: for a pool, or since pods that keep the node anyhow come and go."""
        if _is_upgraded(node):
            return True
        unread = (self._index.state(pool) for pool in self._index.unread_pools)
        if any(node.name in pool.devices_by_node for pool in unread):
            return True
        pools = self._index.pools_on(node.name)
        if any(node.name in self._kept.get(pool, ()) for pool in pools):
            return True
        if any(self._is_unknown(pool) for pool in pools):
            return not self._is_over(node)
        return not self._is_over(node) and any(self._has_pods(node, pool) for pool in pools)

    def _is_unknown(self, name: "PoolName") -> bool:
        pool = self._index.pool(name)
        return pool is not None and pool.scales and name not in self._kept

    def _has_pods(self, node: "NodeFacts", pool: "PoolName") -> bool:
        figures = self._index.state(pool).node(node.name)
        return figures is not None and bool(
            figures.used or figures.reserved or figures.unconfirmed or figures.unaccounted
        )

    def _is_over(self, node: "NodeFacts") -> bool:
        remaining_s = _remaining_s(node.keep_until, self._now().utc)
        return remaining_s is None or remaining_s <= 0

    async def _keep(self, node: "NodeFacts") -> None:
        if node.do_not_disrupt and not node.keep_until:
            return  # of another client
        now = self._now().utc
        current = self._expected.unseen(node.name, _metadata(node)) or node.keep_until
        remaining_s = _remaining_s(current, now)
        is_there = node.do_not_disrupt or current != node.keep_until
        if is_there and remaining_s is not None and remaining_s > RENEWED_AFTER_S:
            return
        text = format_time(now + dt.timedelta(seconds=KEPT_FOR_S))
        await self._write(node, {DO_NOT_DISRUPT_ANNOTATION: "true", KEEP_UNTIL_ANNOTATION: text})
        cause = "an upgrade" if _is_upgraded(node) else "warm units"
        _log.info("node kept", node=node.name, cause=cause, until=text)

    async def _release(self, node: "NodeFacts") -> None:
        if self._expected.unseen(node.name, _metadata(node)) == "":
            return
        await self._write(node, {DO_NOT_DISRUPT_ANNOTATION: None, KEEP_UNTIL_ANNOTATION: None})
        _log.info("node is not needed empty any more", node=node.name)

    async def _write(self, node: "NodeFacts", annotations: dict[str, str | None]) -> None:
        metadata = {"uid": node.uid, "annotations": annotations}
        with contextlib.suppress(NotFound, Invalid):  # gone, or another one by now
            await self._client.merge_patch(NODES, {"metadata": metadata}, name=node.name)
        written = annotations[KEEP_UNTIL_ANNOTATION] or ""
        self._expected.expect_newer(node.name, written, _metadata(node))


def _remaining_s(until: str, now: dt.datetime) -> float | None:
    """Return the seconds until the written end; None where none is readable, or a clock that was ahead wrote it."""
    end = parse_time(until)
    remaining_s = None if end is None else (end - now).total_seconds()
    return (
        None if remaining_s is not None and remaining_s > KEPT_FOR_S + MOST_AHEAD_S else remaining_s
    )


def _metadata(node: "NodeFacts") -> ObjectMeta:
    return ObjectMeta(name=node.name, uid=node.uid, resource_version=node.resource_version)


def _is_upgraded(node: "NodeFacts") -> bool:
    """Say whether Karpenter could take a node away in the middle of an upgrade."""
    return node.is_in_upgrade and NODE_POOL_LABEL in node.labels


def _of_node(context: "ControllerContext", name: "NodeName") -> "Iterable[PoolName]":
    node = context.index.nodes.get(name)
    return [NO_POOL] if node is not None and (node.keep_until or _is_upgraded(node)) else []


def _without_pool(context: "ControllerContext") -> "Iterable[PoolName]":
    """Have nodes that were kept before this term examined, whether they have a pool or not."""
    return {key for name in context.index.nodes for key in _of_node(context, name)}


SPEC: Final = ControllerSpec(
    name="pool.kept-nodes",
    rbac=RBAC,
    triggers=(
        Trigger(source=lambda context: context.shared(index_changes).pools, delay_s=DELAY_S),
        Trigger(source=NODE_CHANGES.source, keys=_of_node, delay_s=DELAY_S),
    ),
    initial=_without_pool,
    build=lambda context: (
        ProtectedNodes(
            context.client, context.index, view=context.shared(scaling_view), now=context.now
        ).reconcile
    ),
)

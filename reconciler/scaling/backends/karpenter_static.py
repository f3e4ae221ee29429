"""Backend `karpenter-static`: the replicas of a static NodePool (`spec.replicas`, Karpenter's gate StaticCapacity).

The NodePool counts nodes and knows no requests: a node that is asked for is one replica more, and nodes that have not
come are told apart by their number. Nodes are given back by fewer replicas, once one of them has been empty for
`idleAfter`; Karpenter then removes a node that was not launched, or the emptiest one.
"""

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from api.foreign.karpenter import NODE_POOL_LABEL, NodePool
from api.names import NodeName
from api.status_conditions import parse_time
from api.text import listed
from autoscaling.scaling_model import Failure, ObservedRequest, RequestId, RequestPhase
from autoscaling.unserved_objects import unserved_node_pools
from autoscaling.warm_nodes import keep_nodes
from kube.errors import Conflict, NotFound
from kube.resources import NODE_POOLS
from manifests.install.rbac import PolicyRule
from reconciler.scaling.backends.node_autoscaler import Unserved
from reconciler.scaling.requested_nodes import node_of_request
from telemetry.conditions import BackendReady

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PoolName
    from autoscaling.scaling_model import (
        ClaimFacts,
        NodeRequest,
        RequestedNode,
        ScalingPlan,
        ScalingTerms,
        ShapeTerms,
    )
    from kube.client import KubeClient
    from pool.model import Instant
    from reconciler.caches import Caches

RBAC: Final = (
    PolicyRule(group=NODE_POOLS.group, resources=("nodepools",), verbs=("get",)),
    PolicyRule(group=NODE_POOLS.group, resources=("nodepools/scale",), verbs=("patch",)),
)
COMES_WITHIN: Final = dt.timedelta(minutes=36)
"""Launch, registration and devices of a node together (`autoscaling.request_lifecycle`)."""
_COMING: Final = frozenset(
    one.value
    for one in (
        RequestPhase.PLANNED,
        RequestPhase.SIGNALLED,
        RequestPhase.LAUNCHED,
        RequestPhase.REGISTERED,
    )
)
ATTEMPTS: Final = 5
"""At a change of the replicas; the next look plans what is left."""
SEEN_WITHIN_S: Final = 10.0
"""Replicas that the watch does not show by then were changed by another client."""


@final
class KarpenterStatic:
    """Asks by replicas."""

    def __init__(
        self, client: "KubeClient", caches: "Caches", now: "Callable[[], Instant]"
    ) -> None:
        self._client = client
        self._caches = caches
        self._index = caches.index
        self._now = now
        self._replicas: dict[str, int] = {}
        # NodePool -> replicas as last observed, and as written since
        self._unseen: dict[PoolName, dict[str, tuple[int, float]]] = {}
        # pool -> NodePool -> replicas that were written, and until when the watch is awaited
        self._empty_since: dict[PoolName, dict[NodeName, float]] = {}

    def observe(
        self, terms: "ScalingTerms", *, now: dt.datetime, known: "Sequence[ScaleRequestStatus]"
    ) -> tuple[ObservedRequest, ...]:
        before = {RequestId(one.id): one for one in known}
        found: list[ObservedRequest] = []
        for shape in _by_node_pool(terms):
            facts = self._caches.node_pools.get(shape.node_pool)
            if facts is None or facts.replicas is None:
                continue
            self._replicas[shape.node_pool] = facts.replicas
            arrived = set(self._arrived(terms, shape.node_pool))
            coming = self._coming(shape.node_pool, arrived)
            names = {one.name for one in terms.shapes if one.node_pool == shape.node_pool}
            asked = [
                id_ for id_, one in before.items() if one.shape in names and one.phase in _COMING
            ]
            for number, id_ in enumerate(
                _ids(asked, facts.replicas - len(arrived), shape.node_pool)
            ):
                claim = coming[number] if number < len(coming) else None
                one = _request(terms, shape, id_, claim=claim, known=before.get(id_), now=now)
                found.append(replace(one, node=self._node_of(terms, one)))
        return tuple(found)

    def is_caught_up(self, pool: "PoolName") -> bool:
        now = self._now().monotonic
        unseen = self._unseen.get(pool, {})
        for name, (replicas, until) in list(unseen.items()):
            facts = self._caches.node_pools.get(name)
            if facts is None or facts.replicas == replicas or now >= until:
                del unseen[name]
        return not unseen

    def taken(self, plan: "ScalingPlan") -> "tuple[NodeRequest, ...]":
        return plan.requests

    async def ensure(self, request: "NodeRequest", terms: "ScalingTerms") -> None:
        """Add a replica, unless another client changed their number since the plan: the next plan knows it."""
        await self._add(request.pool, request.shape.node_pool, 1)

    async def cancel(self, observed: ObservedRequest) -> None:
        if observed.shape is not None:
            await self._add(observed.pool, observed.shape.node_pool, -1)

    async def settle(self, terms: "ScalingTerms", plan: "ScalingPlan") -> None:
        """Remove a replica for a node that has been empty for long, one at a look."""
        pool = terms.pool.name
        since = self._since_empty(terms)
        now = self._now().monotonic
        if plan.requests or not self.is_caught_up(pool):
            return
        for node, at in since.items():
            name = self._index.nodes[node].labels.get(NODE_POOL_LABEL, "")
            if now - at >= terms.idle_after_s and not self._is_growing(terms, name):
                await self._add(pool, name, -1)
                del since[node]
                return

    def unserved(
        self, terms: "ScalingTerms", observed: "Sequence[ObservedRequest]", *, now: dt.datetime
    ) -> Unserved | None:
        """Return the NodePools that got no NodeClaim for their replicas within a minute."""
        names = {one.node_pool for one in terms.shapes}
        found = {name: facts for name in names if (facts := self._caches.node_pools.get(name))}
        unserved = unserved_node_pools(observed, found, self._caches.node_claims, now=now)
        if not unserved:
            return None
        return Unserved(
            BackendReady.STATIC_NOT_SERVED,
            f"Karpenter makes no NodeClaim for the replicas of NodePool {listed(unserved)}: set its feature gate"
            " StaticCapacity, or choose backend karpenter-signal and a NodePool without replicas",
        )

    async def withdraw(self, pool: "PoolName") -> bool:
        """Forget the pool; its NodePools keep their nodes."""
        self._unseen.pop(pool, None)
        self._empty_since.pop(pool, None)
        return True

    def _arrived(self, terms: "ScalingTerms", node_pool: str) -> "Iterator[NodeName]":
        """Yield the nodes of a NodePool that have devices of the pool, and that pods may come to."""
        for name, figures in self._index.state(terms.pool.name).nodes().items():
            node = self._index.nodes.get(name)
            if node is None or node.labels.get(NODE_POOL_LABEL) != node_pool:
                continue
            if figures.total and not node.is_leaving and not node.is_starting:
                yield name

    def _coming(self, node_pool: str, arrived: "set[NodeName]") -> "list[ClaimFacts]":
        found = [
            one
            for one in self._caches.node_claims
            if one.node_pool == node_pool and not one.is_terminating and one.node not in arrived
        ]
        return sorted(found, key=lambda one: (one.created, one.name))

    def _node_of(self, terms: "ScalingTerms", request: ObservedRequest) -> "RequestedNode | None":
        claim = request.claim
        node = self._index.nodes.get(NodeName(claim.node)) if claim is not None else None
        return node_of_request(self._index, terms.pool, node, request=request.id) if node else None

    def _is_growing(self, terms: "ScalingTerms", node_pool: str) -> bool:
        return self._replicas.get(node_pool, 0) > len(list(self._arrived(terms, node_pool)))

    def _since_empty(self, terms: "ScalingTerms") -> "dict[NodeName, float]":
        """Return since when nodes are empty that nothing needs, the one that is longest first."""
        pool, nodes = terms.pool.name, self._index.state(terms.pool.name).nodes()
        kept = keep_nodes(terms, nodes)
        ours = {
            name for one in _by_node_pool(terms) for name in self._arrived(terms, one.node_pool)
        }
        empty = {
            name
            for name in ours - kept
            if not (nodes[name].used or nodes[name].reserved or nodes[name].unconfirmed)
        }
        before, now = self._empty_since.get(pool, {}), self._now().monotonic
        since = {name: before.get(name, now) for name in empty}
        self._empty_since[pool] = dict(sorted(since.items(), key=lambda one: (one[1], one[0])))
        return self._empty_since[pool]

    async def _add(self, pool: "PoolName", name: str, count: int) -> None:
        """Change the replicas from the number that was planned by.

        Karpenter writes the NodePool's status a few times after each change, so that a write may meet a conflict
        though the replicas are those of the plan.
        """
        planned, unseen = self._replicas.get(name), self._unseen.setdefault(pool, {})
        for _ in range(ATTEMPTS if planned is not None else 0):
            before = unseen.get(name)
            try:
                found = await self._client.get(NODE_POOLS, NodePool, name)
                if planned is None or found.spec.replicas != planned:
                    return
                after = max(0, planned + count)
                unseen[name] = (after, self._now().monotonic + SEEN_WITHIN_S)
                patch = {
                    "metadata": {"resourceVersion": found.metadata.resource_version},
                    "spec": {"replicas": after},
                }
                await self._client.merge_patch(NODE_POOLS, patch, name=name, subresource="scale")
            except (Conflict, NotFound):
                # Nothing was written.
                if before is None:
                    unseen.pop(name, None)
                else:
                    unseen[name] = before
            else:
                self._replicas[name] = after
                return


def _by_node_pool(terms: "ScalingTerms") -> "list[ShapeTerms]":
    """Return the first shape of each NodePool: the nodes of a static one are alike."""
    found: dict[str, ShapeTerms] = {}
    for shape in terms.shapes:
        found.setdefault(shape.node_pool, shape)
    return list(found.values())


def _ids(asked: "Sequence[RequestId]", count: int, node_pool: str) -> list[RequestId]:
    """Return ids for so many replicas without a node: those that were asked for, of which the first came first."""
    left = list(asked[max(0, len(asked) - count) :]) if count > 0 else []
    return left + [RequestId(f"{node_pool}-replica-{one}") for one in range(len(left), count)]


def _request(  # what a replica shows
    terms: "ScalingTerms",
    shape: "ShapeTerms",
    id_: RequestId,
    *,
    claim: "ClaimFacts | None",
    known: "ScaleRequestStatus | None",
    now: dt.datetime,
) -> ObservedRequest:
    """Return a replica that has no node with devices yet."""
    phase, message = RequestPhase.SIGNALLED, f"NodePool {shape.node_pool} is to add a node"
    if claim is not None and claim.registered.is_true:
        phase, message = RequestPhase.REGISTERED, f"node {claim.node} has no devices yet"
    elif claim is not None:
        phase, message = RequestPhase.LAUNCHED, f"NodeClaim {claim.name} has no node yet"
    since = now
    if known is not None and known.phase == phase.value:
        since = min(parse_time(known.since) or now, now)
    begun = min(claim.created, since) if claim is not None else since
    deadline = begun + COMES_WITHIN
    failure = None
    if now >= deadline:
        phase, failure = RequestPhase.FAILED, Failure.NO_DEVICES
        minutes = int(COMES_WITHIN.total_seconds() // 60)
        message = f"{message} after {minutes} minutes: check the NodePool, its NodeClaims and the node's driver"
    return ObservedRequest(
        id=id_,
        pool=terms.pool.name,
        shape=shape,
        phase=phase,
        since=since,
        deadline=deadline,
        failure=failure,
        message=message,
        claim=claim,
    )

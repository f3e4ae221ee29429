"""`node.handover`: gives a node that was asked for to the pods that it came for.

The node's startup taint keeps every pod away until its agent has reported the devices and kubelet allocates their
units. Then, in this order, and each step so that it can be repeated:

1. units of the node are reserved for its pods, and the reservations written into their annotations: they survive this
   process;
2. the signals of the request are deleted: one that is left would make the autoscaler add a second node;
3. the startup taint is removed, by which the autoscaler takes the node for initialized;
4. the pods lose their gate.

A process that ends between two steps leaves what the next one goes on from; after step 3 that is `pool.capacity`.
A node without the label of a request, of a pool whose pods the autoscaler sees itself, has steps 3 and 4 only.
"""

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import structlog

from api import names
from api.meta import ObjectMeta, PartialObjectMetadata
from autoscaling.request_ids import is_id_of, pool_in_id
from autoscaling.scaling_model import RequestId
from kube.errors import Conflict, Invalid, NotFound
from kube.resources import NODES, PODS
from manifests.install.rbac import PolicyRule
from pool.model import PodPhase
from pool.placement.planner import may_go_to
from pool.reservations.reservation import ReservationPhase
from reconciler.controller_spec import ControllerSpec
from reconciler.pool.index_changes import NODES as INDEX_NODES
from reconciler.pool.node_labels import CONFLICT_RETRY_S
from reconciler.runtime.expectations import Expectations
from reconciler.scaling.capacity_holds import constraints_of, request_of
from reconciler.scaling.gated_pods import RBAC as POD_RBAC
from reconciler.scaling.gated_pods import gated_pods, order
from reconciler.scaling.gauges import observe_handover
from reconciler.scaling.requested_nodes import units_on
from reconciler.scaling.view import scaling_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.model import NodeFacts, PodFacts, PoolFacts
    from reconciler.controller_spec import ControllerContext
    from reconciler.scaling.gated_pods import GatedPods
    from reconciler.scaling.view import ScalingView

RBAC: Final = (*POD_RBAC, PolicyRule(resources=("nodes",), verbs=("patch",)))
NAMESPACED_RBAC: Final = (PolicyRule(resources=("pods",), verbs=("delete",)),)
"""Rights of signals; pods are listed under the right of `pod.index`."""

VIEW_AGAIN_S: Final = 0.5
"""Seconds to wait at the start of a leadership term, while `pool.scaling` has not planned which pods a node is for."""
STABLE_WITHIN_S: Final = 30.0
"""How long labels and taints of the pool, and taints of others that its pods do not tolerate, are waited for. A taint
that stays must not keep a paid node from its other pods for ever."""

_log = structlog.get_logger()


@final
class NodeHandover:
    """Hands over one node at a time."""

    def __init__(
        self,
        context: "ControllerContext",
        *,
        view: "ScalingView",
        gated: "GatedPods",
        namespace: str,
    ) -> None:
        """Take the stores; signals are in the namespace."""
        self._client = context.client
        self._state = context.allocation_state
        self._index = context.index
        self._reader = context.reader
        self._catalog = context.catalog
        self._scheduling = context.scheduling
        self._now = context.now
        self._view = view
        self._gated = gated
        self._namespace = namespace
        self._ready_since: dict[names.NodeName, float] = {}
        # node whose agent is ready -> since when
        self._released: Expectations[names.NodeName, bool] = Expectations(context.now)
        # nodes whose startup taint was removed, until the watch shows it

    async def reconcile(self, name: "names.NodeName") -> float | None:
        """Hand over a node whose agent is ready; repeat what an earlier run has not finished."""
        node = self._index.nodes.get(name)
        if node is None or not node.is_starting or node.is_leaving or self._is_released(node):
            self._ready_since.pop(name, None)
            return None
        request = _request_of(node)
        pools = self._pools_of(node, request)
        if pools is None:
            return VIEW_AGAIN_S
        if not self._is_ready(node, pools, request):
            self._ready_since.pop(name, None)
            return None
        if self._is_incomplete(node, pools, request):
            return VIEW_AGAIN_S
        now = self._now().monotonic
        since = self._ready_since.setdefault(name, now)
        pods = self._pods_of(request)
        if now - since < STABLE_WITHIN_S and not self._is_complete(node, pools, pods):
            return VIEW_AGAIN_S
        return await self._hand_over(node, request, pools=pools, pods=pods)

    async def _hand_over(
        self,
        node: "NodeFacts",
        request: RequestId,
        *,
        pools: "Sequence[PoolFacts]",
        pods: "Sequence[PodFacts]",
    ) -> float | None:
        self._reserve(node, pools, pods)
        await self._gated.note(self._held_on(node.name))
        await self._delete_signals(request)
        try:
            await self._remove_taint(node)
        except (Conflict, Invalid):
            return CONFLICT_RETRY_S
        held = self._held_on(node.name)
        await self._gated.ungate(held)
        self._end(node, request, pods=len(held))
        return None

    def _is_ready(
        self, node: "NodeFacts", pools: "Sequence[PoolFacts]", request: RequestId
    ) -> bool:
        """Return whether the units of the pools can be used, or no pod is left that waits for them."""
        requested_pool = names.PoolName(pool_in_id(request)) if request else None
        if requested_pool is not None and self._index.pool(requested_pool) is None:
            return not any(name.startswith(requested_pool) for name in self._index.unread_pools)
        return (
            node.is_ready
            and bool(pools)
            and all(
                0 < indexed <= allocatable
                for indexed, allocatable in (units_on(self._index, pool, node) for pool in pools)
            )
        )

    def _is_incomplete(
        self, node: "NodeFacts", pools: "Sequence[PoolFacts]", request: RequestId
    ) -> bool:
        """Return whether the node has fewer units than its shape promises, and `pool.scaling` awaits the others."""
        promised = self._view.awaited_units(request)
        has_fewer = any(units_on(self._index, pool, node)[0] < promised for pool in pools)
        return has_fewer and not self._held_on(node.name)

    def _is_released(self, node: "NodeFacts") -> bool:
        return bool(self._released.unseen(node.name, _metadata(node)))

    def _pools_of(self, node: "NodeFacts", request: RequestId) -> "list[PoolFacts] | None":
        """Return the pools whose devices must be ready: that of the request, or all on the node.

        None: it is not yet planned which pods the node is for.
        """
        here = [self._index.pool(name) for name in sorted(self._index.pools_on(node.name))]
        pools = [pool for pool in here if pool is not None]
        if not request:
            return pools
        scaling_pools = self._view.pools
        if any(pool.scales and pool.name not in scaling_pools for pool in pools):
            return None
        return [pool for pool in pools if is_id_of(pool, request)]

    def _pods_of(self, request: RequestId) -> "list[PodFacts]":
        """Return the pods that the node came for and that still wait, in the order in which they get units."""
        if not request:
            return []
        pods = (self._reader.pods.get(uid) for uid in self._view.pods_of(request))
        return [
            pod
            for pod in pods
            if pod is not None
            and pod.phase is PodPhase.PENDING
            and self._reader.ledger.of_pod(pod.uid) is None
        ]

    def _is_complete(
        self, node: "NodeFacts", pools: "Sequence[PoolFacts]", pods: "Sequence[PodFacts]"
    ) -> bool:
        """Say whether the pods could go to the node, but for the startup taint, and only the pool's pods could."""
        there = {(taint.key, taint.effect) for taint in node.taints}
        for pool in pools:
            if names.pool_node_label(pool.name) not in node.labels:
                return False
            facts = self._catalog.pools.get(pool.name)
            if facts is not None and any(
                (item.key, item.effect) not in there for item in facts.taints
            ):
                return False
        opened = without_startup_taint(node)
        return all(may_go_to(opened, constraints_of(pod)) for pod in pods)

    def _reserve(
        self, node: "NodeFacts", pools: "Sequence[PoolFacts]", pods: "Sequence[PodFacts]"
    ) -> None:
        """Reserve units for the pods that may go to the node, and let earlier reservations last."""
        now = self._now()
        opened = without_startup_taint(node)
        by_resource = {pool.resource: pool for pool in pools}
        for pod in self._held_on(node.name):
            pool = by_resource.get(pod.demand.resource)
            held = self._reader.ledger.of_pod(pod.uid)
            if pool is None or held is None:
                continue
            if held.expires_at - now.monotonic < pool.ttl_s / 2:
                self._state.extend(pod.uid, pool.ttl_s, now)
        for pod in pods:
            pool = by_resource.get(pod.demand.resource)
            if pool is None or not may_go_to(opened, constraints_of(pod)):
                continue
            placed = self._reader.plan_on(node.name, pool, pod.demand)
            if placed is not None:
                request = request_of(pod, pool, self._scheduling.new_id())
                self._state.hold(request, placed, uid=pod.uid, now=now)

    def _held_on(self, name: "names.NodeName") -> "list[PodFacts]":
        """Return the pending pods with reserved units on a node, in order."""
        found = [
            pod
            for reservation in self._reader.ledger.all()
            if reservation.node == name
            and reservation.phase is ReservationPhase.CONFIRMED
            and reservation.uid is not None
            and (pod := self._reader.pods.get(reservation.uid)) is not None
            and pod.phase is PodPhase.PENDING
        ]
        return sorted(found, key=order)

    async def _delete_signals(self, request: RequestId) -> None:
        """Delete the signals of a request, as the API server has them now: a cache may lack a new one."""
        if not request:
            return
        found = await self._client.list_(
            PODS,
            PartialObjectMetadata,
            namespace=self._namespace,
            label_selector=f"{names.COMPONENT_LABEL}={names.SCALE_SIGNAL},{names.SCALE_REQUEST_LABEL}={request}",
        )
        for item in found.items:
            meta = item.metadata
            with contextlib.suppress(NotFound, Conflict):  # gone, or another one by now
                await self._client.delete(
                    PODS, meta.name, namespace=self._namespace, uid=meta.uid, grace_period_s=0
                )

    async def _remove_taint(self, node: "NodeFacts") -> None:
        """Remove the startup taint where it stood; other taints stay.

        Raises:
            Conflict, Invalid: the taints have changed since they were read.
        """
        patch: list[dict[str, object]] = []
        for place in reversed(range(len(node.taints))):
            taint = node.taints[place]
            if taint.key == names.AGENT_NOT_READY_TAINT:
                path = f"/spec/taints/{place}"
                patch += [
                    {"op": "test", "path": f"{path}/key", "value": taint.key},
                    {"op": "test", "path": f"{path}/effect", "value": taint.effect},
                    {"op": "remove", "path": path},
                ]
        metadata = _metadata(node)
        with contextlib.suppress(NotFound):
            await self._client.json_patch(NODES, patch, name=node.name)
        self._released.expect_newer(node.name, True, metadata)  # noqa: FBT003  # a value

    def _end(self, node: "NodeFacts", request: RequestId, *, pods: int) -> None:
        now = self._now().monotonic
        seconds = now - self._ready_since.pop(node.name, now)
        observe_handover(seconds)
        _log.info(
            "node handed over",
            node=node.name,
            request=request,
            pods=pods,
            seconds=round(seconds, 3),
        )


def without_startup_taint(node: "NodeFacts") -> "NodeFacts":
    """Return the node as it is once it is handed over."""
    taints = tuple(taint for taint in node.taints if taint.key != names.AGENT_NOT_READY_TAINT)
    return replace(node, taints=taints, is_starting=False)


def _request_of(node: "NodeFacts") -> RequestId:
    """Return the id of the node's request, or nothing.

    Where no signal asked, as for a replacement of a drifted node, Karpenter itself gives the label a random number.
    """
    request = RequestId(node.labels.get(names.SCALE_REQUEST_LABEL, ""))
    return request if pool_in_id(request) else RequestId("")


def _metadata(node: "NodeFacts") -> ObjectMeta:
    return ObjectMeta(name=node.name, uid=node.uid, resource_version=node.resource_version)


def node_handover(context: "ControllerContext") -> NodeHandover:
    return NodeHandover(
        context,
        view=context.shared(scaling_view),
        gated=context.shared(gated_pods),
        namespace=context.settings.workloads.namespace,
    )


SPEC: Final = ControllerSpec(
    name="node.handover",
    rbac=RBAC,
    namespaced_rbac=NAMESPACED_RBAC,
    triggers=(INDEX_NODES,),
    build=lambda context: node_handover(context).reconcile,
    workers=8,
)

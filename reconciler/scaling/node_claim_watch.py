"""`nodeclaim.watch`: records the stages of NodeClaims that a pool caused, and deletes those whose node never has a device that works.

Karpenter gives up a NodeClaim whose instance does not launch or register, but never one that is registered and lacks its
devices: that is paid for ever. After the time that the pool allows it is deleted here, which is the only NodeClaim that this control plane
deletes: one of a scaling pool, registered, not initialized, with no unit of the pool on a device that is not faulted, and
with no device that a pod has.
The time is measured by the monotonic clock from the first pass on, less the age that the NodeClaim had then, and is two
minutes at least: no jump of the clock deletes anything.
"""

import datetime as dt
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, final

import structlog

from api.names import NodeName
from autoscaling.claim_failure import claim_failure
from autoscaling.parameters import scaling_parameters
from autoscaling.request_ids import is_id_of
from autoscaling.request_lifecycle import foreign_claims
from autoscaling.scaling_model import ObservedRequest, RequestId, RequestPhase
from kube.errors import Conflict, NotFound
from kube.event_recorder import ObjectReference
from kube.resources import GPU_POOLS, NODE_CLAIMS, PODS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec, Trigger
from reconciler.pool.index_changes import NODES
from reconciler.scaling.events import (
    foreign_claim,
    node_failed,
    node_launched,
    node_ready,
    node_registered,
    node_without_devices,
)
from reconciler.scaling.gauges import count_duplicate
from reconciler.scaling.requested_nodes import requested_node
from reconciler.scaling.view import scaling_view

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.names import PodUid
    from autoscaling.scaling_model import ClaimFacts, ScalingParameters
    from reconciler.controller_spec import ControllerContext, Reconcile
    from reconciler.scaling.events import ScalingEvent
    from reconciler.scaling.view import ScalingView

RBAC: Final = (
    PolicyRule(group=NODE_CLAIMS.group, resources=(NODE_CLAIMS.plural,), verbs=("delete",)),
)

LEAST_WATCH_S: Final = 120.0
"""Seconds before the first deletion of a term: stores, clocks and agents become stable."""
VIEW_AGAIN_S: Final = 2.0
"""Seconds until `pool.scaling` has processed a NodeClaim that is new."""
VIEW_WITHIN_S: Final = 60.0
MOST_PODS: Final = 20
"""Pods that get an Event about one node."""

_log = structlog.get_logger()


class Stage(IntEnum):
    """How far a NodeClaim is, in its order."""

    UNKNOWN = 0
    LAUNCHED = 1
    REGISTERED = 2
    READY = 3
    ENDED = 4


@final
@dataclass(slots=True)
class _Watched:
    """What is known of one NodeClaim."""

    facts: "ClaimFacts"
    seen_at: float
    stage: Stage = Stage.UNKNOWN
    """The last one that was recorded."""
    pods: "tuple[PodUid, ...]" = ()
    due_at: float | None = None
    """When it is deleted unless its node has devices."""
    is_foreign_reported: bool = False
    is_duplicate_counted: bool = False


@final
class NodeClaimWatch:
    """Watches one NodeClaim at a time."""

    def __init__(self, context: "ControllerContext", view: "ScalingView") -> None:
        self._client = context.client
        self._stores = context.stores
        self._claims = context.stores.node_claims
        self._index = context.index
        self._reader = context.reader
        self._catalog = context.catalog
        self._recorder = context.recorder
        self._now = context.now
        self._view = view
        self._began = context.now().utc
        self._watched: dict[str, _Watched] = {}
        # name -> what is known

    async def reconcile(self, name: str) -> float | None:
        """Record what is new of a NodeClaim, and delete it where it is due."""
        claim, watched = self._claims.get(name), self._watched.get(name)
        if watched is not None and (claim is None or claim.uid != watched.facts.uid):
            self._end(self._watched.pop(name))
            watched = None
        if claim is None:
            return None
        parameters = self._parameters_of(claim)
        if parameters is None:
            return None
        if watched is None:
            watched = self._watched[name] = _Watched(claim, self._now().monotonic)
        watched.facts = claim
        if claim.request is not None:
            watched.pods = self._view.pods_of(claim.request) or watched.pods
        observed = self._observed(claim, parameters)
        self._report(watched, observed)
        if claim.is_terminating or claim.initialized.is_true:
            return None
        self._count_duplicate(watched, parameters)
        again_s = self._report_foreign(watched, parameters)
        due_s = await self._delete_when_due(watched, parameters)
        return min((item for item in (again_s, due_s) if item is not None), default=None)

    # --- what it is ---

    def _parameters_of(self, claim: "ClaimFacts") -> "ScalingParameters | None":
        """Return the parameters of the pool that caused a NodeClaim; None for any other."""
        for name in sorted(self._catalog.pools):
            pool, facts = self._catalog.pools[name], self._index.pool(name)
            parameters = scaling_parameters(pool, facts) if facts is not None else None
            if parameters is None:
                continue
            if claim.request is not None and is_id_of(parameters.pool, claim.request):
                return parameters
            if claim.request is None and claim.node_pool in {
                shape.node_pool for shape in parameters.shapes
            }:
                return parameters
        return None

    def _observed(self, claim: "ClaimFacts", parameters: "ScalingParameters") -> ObservedRequest:
        """Return the request as this NodeClaim and its Node alone show it."""
        facts = self._index.nodes.get(NodeName(claim.node)) if claim.node else None
        node = requested_node(self._stores, parameters.pool, facts) if facts is not None else None
        return ObservedRequest(
            id=claim.request or RequestId(claim.name),
            pool=parameters.pool.name,
            shape=None,
            phase=RequestPhase.LAUNCHED,
            since=claim.created,
            claim=claim,
            node=node,
        )

    def _stage(self, observed: ObservedRequest) -> Stage:
        claim, node = observed.claim, observed.node
        if claim is None or claim.is_terminating:
            return Stage.ENDED
        if claim.initialized.is_true or (node is not None and node.is_agent_ready):
            return Stage.READY
        return Stage.REGISTERED if claim.registered.is_true else Stage.LAUNCHED

    # --- Events ---

    def _report(self, watched: _Watched, observed: ObservedRequest) -> None:
        """Record a stage that is new; of a NodeClaim of an earlier term the stage that it has was recorded then."""
        before, stage = watched.stage, self._stage(observed)
        if stage <= before or watched.facts.request is None:
            return
        watched.stage = stage
        if before is Stage.UNKNOWN and watched.facts.created < self._began:
            return
        match stage:
            case Stage.LAUNCHED:
                self._record(watched, node_launched(observed))
            case Stage.REGISTERED:
                self._record(watched, node_registered(observed))
            case Stage.READY:
                self._record(watched, node_ready(observed))
            case Stage.ENDED if before is not Stage.READY:
                self._report_failure(watched)
            case _:
                pass

    def _end(self, watched: _Watched) -> None:
        """Record the end of a NodeClaim that was deleted unseen."""
        if watched.stage not in {Stage.UNKNOWN, Stage.READY, Stage.ENDED}:
            self._report_failure(watched)

    def _report_failure(self, watched: _Watched) -> None:
        """Record that a NodeClaim went before its node was ready, for the reason that its last facts show."""
        claim = self._last_facts(watched.facts)
        parameters = self._parameters_of(claim)
        if parameters is None or claim.request is None:
            return
        failure, message = claim_failure(claim, self._now().utc, parameters.devices_within)
        request = ObservedRequest(
            id=claim.request,
            pool=parameters.pool.name,
            shape=None,
            phase=RequestPhase.FAILED,
            since=self._now().utc,
            failure=failure,
            message=f"{failure.value}: {message}",
            claim=claim,
        )
        event = node_failed(request)
        self._record(watched, event)
        self._record_on_pool(parameters, event)

    def _last_facts(self, claim: "ClaimFacts") -> "ClaimFacts":
        return next((item for item in self._claims.deleted() if item.uid == claim.uid), claim)

    def _report_foreign(self, watched: _Watched, parameters: "ScalingParameters") -> float | None:
        """Record a NodeClaim without a request, once `pool.scaling` has seen it; return when to reconcile again."""
        claim = watched.facts
        seen = self._view.pools.get(parameters.pool.name)
        if claim.request is None or watched.is_foreign_reported:
            return None
        if seen is None or all(
            item.claim is None or item.claim.uid != claim.uid for item in seen.observed
        ):
            age_s = self._now().monotonic - watched.seen_at
            return VIEW_AGAIN_S if age_s < VIEW_WITHIN_S else None
        if claim.uid in {item.uid for item in foreign_claims(seen.observed)}:
            watched.is_foreign_reported = True
            self._record_on_pool(parameters, foreign_claim(parameters.pool.name, claim))
        return None

    def _record(self, watched: _Watched, event: "ScalingEvent") -> None:
        for uid in watched.pods[:MOST_PODS]:
            pod = self._reader.pods.get(uid)
            if pod is not None:
                event.record(self._recorder, ObjectReference.to(PODS, pod))

    def _record_on_pool(self, parameters: "ScalingParameters", event: "ScalingEvent") -> None:
        pool = self._catalog.pools.get(parameters.pool.name)
        if pool is not None:
            event.record(self._recorder, ObjectReference.to(GPU_POOLS, pool.metadata))

    def _count_duplicate(self, watched: _Watched, parameters: "ScalingParameters") -> None:
        """Count a NodeClaim that is not the first one of its request."""
        claim = watched.facts
        if claim.request is None or watched.is_duplicate_counted:
            return
        watched.is_duplicate_counted = any(
            other.request == claim.request
            and not other.is_terminating
            and (other.created, other.name) < (claim.created, claim.name)
            for other in self._claims
        )
        if watched.is_duplicate_counted:
            count_duplicate(parameters.pool.name)

    # --- what is deleted ---

    async def _delete_when_due(
        self, watched: _Watched, parameters: "ScalingParameters"
    ) -> float | None:
        """Delete a NodeClaim whose time for devices is over; return the seconds until then.

        Raises:
            KubeError: it is not known whether it was deleted.
        """
        claim = watched.facts
        if not claim.registered.is_true or self._has_devices(claim, parameters):
            watched.due_at = None
            return None
        now = self._now()
        if watched.due_at is None:
            age = now.utc - (claim.registered.since or now.utc)
            left = parameters.devices_within - max(age, dt.timedelta())
            watched.due_at = now.monotonic + max(LEAST_WATCH_S, left.total_seconds())
        left_s = watched.due_at - now.monotonic
        if left_s > 0:
            return left_s
        if await self._delete(claim):
            self._record_on_pool(parameters, node_without_devices(parameters.pool.name, claim))
        return None

    async def _delete(self, claim: "ClaimFacts") -> bool:
        """Delete a NodeClaim; False where it is gone, or another one has its name."""
        try:
            await self._client.delete(NODE_CLAIMS, claim.name, uid=claim.uid)
        except (NotFound, Conflict):
            return False
        _log.warning(
            "NodeClaim deleted: its node has no devices", claim=claim.name, node=claim.node
        )
        return True

    def _has_devices(self, claim: "ClaimFacts", parameters: "ScalingParameters") -> bool:
        """Say whether the node has a device of the pool that is not faulted, or one that a pod has, or gets a new driver."""
        node = NodeName(claim.node)
        if not claim.node:
            return False
        facts = self._index.nodes.get(node)
        if facts is not None and facts.is_in_upgrade:
            return True
        entries = self._index.devices_on(parameters.pool.name, node)
        if any(entry.layout.ids and not entry.facts.is_faulted for entry in entries):
            return True
        return any(self._index.devices[item].taken for item in self._index.devices.on_node(node))


def _claims_of_node(context: "ControllerContext", node: NodeName) -> "Iterable[str]":
    """Return the NodeClaims of a node that are on their way."""
    return [
        claim.name
        for claim in context.stores.node_claims
        if claim.node == node and not claim.initialized.is_true
    ]


def node_claim_watch(context: "ControllerContext") -> NodeClaimWatch:
    return NodeClaimWatch(context, context.shared(scaling_view))


def _build(context: "ControllerContext") -> "Reconcile":
    return node_claim_watch(context).reconcile


SPEC: Final = ControllerSpec(
    name="nodeclaim.watch",
    rbac=RBAC,
    triggers=(
        Trigger(source=lambda context: context.stores.node_claims.changes),
        Trigger(source=NODES.source, keys=_claims_of_node),
    ),
    initial=lambda context: sorted(context.stores.node_claims.names()),
    build=_build,
)

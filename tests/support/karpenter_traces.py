"""What Karpenter leaves in the API for scripted situations: recorded from itself, and compared with its double.

A trace has no times and no names. States that a client may or may not see, as they last for less than a watch
event takes, are left out.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from api.clock import Clock
from api.foreign.core import Node
from api.foreign.karpenter import NODE_POOL_LABEL, UNREGISTERED_TAINT, NodeClaim
from api.meta import Model, ObjectMeta
from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL, SIGNAL_SCHEDULER
from autoscaling.scaling_model import RequestId
from kube.client import KubeClient
from kube.errors import Conflict, NotFound
from kube.informer import Informer
from kube.resources import EVENTS, NODE_CLAIMS, NODES, PODS
from manifests.scaling.signal_pod import unschedulable_patch
from tests.support.scaling_stories import ScalingCluster, ScalingPool, until

Json = dict[str, Any]

CONDITIONS: Final = ("Launched", "Registered", "Initialized")
LABELS: Final = (
    SCALE_REQUEST_LABEL,
    NODE_POOL_LABEL,
    "karpenter.sh/registered",
    "karpenter.sh/initialized",
)
PASSING: Final = frozenset(
    {
        ("Launched", "AwaitingReconciliation"),
        ("Registered", "AwaitingReconciliation"),
        ("Registered", "NodeNotFound"),
        ("Registered", ""),
        ("Initialized", "AwaitingReconciliation"),
        ("Initialized", "NodeNotFound"),
        ("Initialized", "NodeNotReady"),
        ("Initialized", "KnownEphemeralTaintsExist"),
        ("Initialized", ""),
    }
)
"""Reasons of conditions that a client may miss."""
NODE_TAINTS: Final = frozenset(
    {AGENT_NOT_READY_TAINT, UNREGISTERED_TAINT, "karpenter.sh/disrupted"}
)
EVENT_REASONS: Final = frozenset(
    {"FailedScheduling", "InsufficientCapacityError", "DisruptionTerminating", "Nominated"}
)
"""Those that the control plane or a user reads."""


class InvolvedObject(Model, frozen=True):
    kind: str = ""
    name: str = ""


class SeenEvent(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    regarding: InvolvedObject = InvolvedObject()
    reason: str = ""
    reporting_controller: str = ""


@dataclasses.dataclass
class Trace:
    """Of one NodePool, as it grows."""

    node_pool: str
    claims: set[str] = dataclasses.field(default_factory=set)
    conditions: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Type -> `status reason`, in order."""
    claim_spec: Json = dataclasses.field(default_factory=dict)
    labels: set[str] = dataclasses.field(default_factory=set)
    """Of the Node, out of `LABELS`."""
    taints: list[list[str]] = dataclasses.field(default_factory=list)
    """Of the Node, out of `NODE_TAINTS`, in order."""
    ends: set[str] = dataclasses.field(default_factory=set)
    events: set[str] = dataclasses.field(default_factory=set)
    """`kind reason`."""

    def to_json(self) -> Json:
        return {
            "claims": "several" if len(self.claims) > 1 else len(self.claims),
            "conditions": self.conditions,
            "claimSpec": self.claim_spec,
            "nodeLabels": sorted(self.labels),
            "nodeTaints": self.taints,
            "ends": sorted(self.ends),
            "events": sorted(self.events),
        }

    def claim(self, claim: NodeClaim) -> None:
        self.claims.add(claim.metadata.name)
        spec = claim.spec
        self.claim_spec = {
            # That of the provider's own node class is left out.
            "requirements": sorted(
                requirement.key
                for requirement in spec.requirements or ()
                if not requirement.key.endswith("nodeclass")
            ),
            "startupTaints": [taint.key for taint in spec.startup_taints or ()],
            "requests": sorted(spec.resources.requests or ()),
        }
        for condition in claim.status.conditions or ():
            if condition.type in CONDITIONS and (condition.type, _reason(condition)) not in PASSING:
                _grow(
                    self.conditions.setdefault(condition.type, []),
                    f"{condition.status} {_reason(condition)}".strip(),
                )
        if claim.metadata.deletion_timestamp:
            self.ends.add("claim is deleted")

    def node(self, node: Node) -> None:
        labels = node.metadata.labels or {}
        self.labels |= {key for key in LABELS if key in labels}
        taints = sorted(taint.key for taint in node.spec.taints or () if taint.key in NODE_TAINTS)
        _grow(self.taints, taints)
        if node.metadata.deletion_timestamp:
            self.ends.add("node is deleted")


class _Sink:
    def __init__(self, seen: Callable[[Any], None], gone: Callable[[Any], None]) -> None:
        self.upsert = seen
        self.discard = gone

    def replace_all(self, items: Any) -> None:
        for item in items:
            self.upsert(item)


@contextlib.asynccontextmanager
async def recorded(client: KubeClient, clock: Clock, node_pool: str) -> AsyncIterator[Trace]:
    """Record what happens in the context."""
    trace = Trace(node_pool)

    def is_ours(one: Any) -> bool:
        return bool(one.metadata.label(NODE_POOL_LABEL) == node_pool)

    def event(one: SeenEvent) -> None:
        is_karpenters = one.reporting_controller == "karpenter"
        if is_karpenters and one.reason in EVENT_REASONS and node_pool in one.regarding.name:
            trace.events.add(f"{one.regarding.kind} {one.reason}")

    sinks: tuple[tuple[Any, Any, _Sink], ...] = (
        (
            NODE_CLAIMS,
            NodeClaim,
            _Sink(
                lambda item: trace.claim(item) if is_ours(item) else None,
                lambda item: trace.ends.add("claim is gone") if is_ours(item) else None,
            ),
        ),
        (
            NODES,
            Node,
            _Sink(
                lambda item: trace.node(item) if is_ours(item) else None,
                lambda item: trace.ends.add("node is gone") if is_ours(item) else None,
            ),
        ),
        (EVENTS, SeenEvent, _Sink(event, lambda _: None)),
    )
    async with asyncio.TaskGroup() as group:
        informers = [
            Informer(client, resource, type_, sink=sink, clock=clock)
            for resource, type_, sink in sinks
        ]
        tasks = [group.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.synced.wait()
        yield trace
        for task in tasks:
            task.cancel()


async def signal(cluster: ScalingCluster, node_pool: str, number: int, request: str = "a") -> str:
    """Create a signal for a node of the NodePool, as the control plane does; return its name."""
    name = f"scale-{node_pool}-{number}"
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {
            "schedulerName": SIGNAL_SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {
                NODE_POOL_LABEL: node_pool,
                SCALE_REQUEST_LABEL: f"{node_pool}-{request}",
            },
            "containers": [
                {
                    "name": "signal",
                    "image": "registry.test/pause",
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }
            ],
        },
    }
    made = (await cluster.client.create(PODS, pod)).decode(NodeClaim)
    patch = unschedulable_patch(
        RequestId(f"{node_pool}-{request}"),
        uid=made.metadata.uid,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    await cluster.client.json_patch(
        PODS, patch, name=name, namespace=cluster.namespace, subresource="status"
    )
    return name


async def release(cluster: ScalingCluster, node: str) -> None:
    """Remove the startup taint of a node, as the hand-over does."""
    while True:
        current = await cluster.client.get(NODES, Node, node)
        kept = [
            msgspec.to_builtins(taint)
            for taint in current.spec.taints or ()
            if taint.key != AGENT_NOT_READY_TAINT
        ]
        body: Json = {
            "metadata": {"resourceVersion": current.metadata.resource_version},
            "spec": {"taints": kept},
        }
        try:
            await cluster.client.merge_patch(NODES, body, name=node)
        except Conflict:
            continue
        return


async def empty_node(cluster: ScalingCluster, pool: ScalingPool, trace: Trace) -> None:
    """Two signals of one id, one node; the startup taint goes with the signals, and the empty node follows."""
    names = [await signal(cluster, trace.node_pool, number) for number in range(2)]
    node = await registered(cluster, trace)
    await _until(
        trace, lambda: "Unknown StartupTaintsExist" in trace.conditions.get("Initialized", ())
    )
    for name in names:
        await cluster.client.delete(PODS, name, namespace=cluster.namespace)
    await release(cluster, node)
    await _until(trace, lambda: "claim is gone" in trace.ends)


async def no_capacity(cluster: ScalingCluster, pool: ScalingPool, trace: Trace) -> None:
    """No launch succeeds: NodeClaims come and go until the signal is deleted."""
    await cluster.set_capacity(trace.node_pool, is_available=False)
    name = await signal(cluster, trace.node_pool, 0)
    await _until(trace, lambda: len(trace.claims) > 1 and "claim is gone" in trace.ends)
    await cluster.client.delete(PODS, name, namespace=cluster.namespace)
    await cluster.set_capacity(trace.node_pool, is_available=True)


async def at_its_limit(cluster: ScalingCluster, pool: ScalingPool, trace: Trace) -> None:
    """The NodePool may have one node; the second signal stays without a NodeClaim."""
    await signal(cluster, trace.node_pool, 0, "a")
    await registered(cluster, trace)
    await signal(cluster, trace.node_pool, 1, "b")
    await _until(trace, lambda: "Pod FailedScheduling" in trace.events)


async def deleted_claim(cluster: ScalingCluster, pool: ScalingPool, trace: Trace) -> None:
    """The NodeClaim of a node that never became ready is deleted, as for a node without devices."""
    name = await signal(cluster, trace.node_pool, 0)
    await registered(cluster, trace)
    await _until(trace, lambda: bool(trace.conditions.get("Initialized")))
    await cluster.client.delete(PODS, name, namespace=cluster.namespace)
    (claim,) = trace.claims
    await cluster.client.delete(NODE_CLAIMS, claim)
    await _until(trace, lambda: "claim is gone" in trace.ends)


@dataclasses.dataclass(frozen=True)
class Situation:
    name: str
    play: Callable[[ScalingCluster, ScalingPool, Trace], Awaitable[None]]
    limits: Json | None = None


SITUATIONS: Final = (
    Situation("empty-node", empty_node),
    Situation("no-capacity", no_capacity),
    Situation("at-its-limit", at_its_limit, limits={"cpu": "32"}),
    Situation("deleted-claim", deleted_claim),
)


async def trace_of(cluster: ScalingCluster, clock: Clock, situation: Situation) -> Json:
    """Play the situation; return what it left in the API."""
    pool = ScalingPool(cluster, f"trace-{situation.name}")
    node_pool = await pool.create_node_pool("any", "gpu-2x", limits=situation.limits)
    async with recorded(cluster.client, clock, node_pool) as trace:
        await situation.play(cluster, pool, trace)
        return trace.to_json()


async def registered(cluster: ScalingCluster, trace: Trace) -> str:
    """Wait until the only NodeClaim is registered; return its node."""
    await _until(trace, lambda: "True Registered" in trace.conditions.get("Registered", ()))
    (claim,) = trace.claims
    with contextlib.suppress(NotFound):
        return (await cluster.client.get(NODE_CLAIMS, NodeClaim, claim)).status.node_name
    raise AssertionError(f"NodeClaim {claim} is gone")


async def _until(trace: Trace, holds: Callable[[], bool]) -> None:
    async def current() -> Json:
        return trace.to_json()

    await until(f"trace of {trace.node_pool}", current, lambda _: holds())


def _reason(condition: Any) -> str:
    return str(condition.reason or "")


def _grow(steps: list[Any], step: Any) -> None:
    if not steps or steps[-1] != step:
        steps.append(step)

"""A fake kube-scheduler: one profile, one serial scheduling cycle, one extender.

It covers the needs of the demo and of component tests, in kube-scheduler's order: in-tree filters
(readiness, cordon, taints, selector, required affinity, extended resources by count, strict spread
constraints), the extender's filter and prioritize, preemption, the extender's bind; the condition
PodScheduled; a queue in which the end of a bound pod, a change of a node or of the pod requeues an
unschedulable pod. tests/cluster holds the same expectations against the real kube-scheduler.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

import msgspec
import structlog

from api.foreign.core import Node, NodeCondition, NodeMetadata, NodeSpec, NodeStatus, Pod
from api.meta import Model
from api.names import DEFAULT_SCHEDULER_NAME, NodeName
from kube.errors import KubeError, NotFound
from kube.informer import Informer
from kube.resources import NODES, PODS
from pool.demand import demand_of
from pool.facts import node_facts
from pool.model import Constraints, Demand
from pool.placement.planner import may_go_to
from simulator.scheduler.extender_client import ExtenderClient, ExtenderError
from simulator.scheduler.topology_spread import has_strict_spread, nodes_left

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from api.clock import Clock
    from kube.client import KubeClient

FIRST_BACKOFF_S: Final = 0.2
"""kube-scheduler waits 1 s; the demo has only one minute."""
MAX_BACKOFF_S: Final = 10.0
FIELD_MANAGER: Final = "kube-scheduler"

_log = structlog.get_logger()


class _Status(Model, frozen=True):
    conditions: list[NodeCondition] | None = None
    allocatable: dict[str, str] | None = None


class ScheduledNode(Model, frozen=True):
    """A node with the fields that the scheduler needs."""

    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec = NodeSpec()
    status: _Status = _Status()

    @property
    def name(self) -> NodeName:
        return NodeName(self.metadata.name)

    @property
    def node(self) -> Node:
        """Return the node without its resources."""
        return Node(
            metadata=self.metadata,
            spec=self.spec,
            status=NodeStatus(conditions=self.status.conditions),
        )

    def allocatable(self, resource: str) -> int:
        """Return the allocatable count of an extended resource."""
        return int((self.status.allocatable or {}).get(resource, "0"))


@final
class _Nodes:
    """The scheduler's cache of nodes."""

    def __init__(self, wake_all: "Callable[[], None]") -> None:
        self.by_name: dict[NodeName, ScheduledNode] = {}
        self._wake_all = wake_all

    def replace_all(self, items: "Sequence[ScheduledNode]") -> None:
        self.by_name = {item.name: item for item in items}
        self._wake_all()

    def upsert(self, item: ScheduledNode) -> None:
        """Store a node and requeue unschedulable pods."""
        self.by_name[item.name] = item
        self._wake_all()

    def discard(self, item: ScheduledNode) -> None:
        self.by_name.pop(item.name, None)


@final
class FakeScheduler:
    """Schedules the pods of one profile."""

    def __init__(
        self,
        client: "KubeClient",
        extender: "ExtenderClient",
        clock: "Clock",
        *,
        profile: str = DEFAULT_SCHEDULER_NAME,
    ) -> None:
        self._client = client
        self._extender = extender
        self._clock = clock
        self._profile = profile
        self._wake = asyncio.Event()
        self._nodes = _Nodes(self._wake_all)
        self._pods: dict[str, Pod] = {}
        self._retry_at: dict[str, float] = {}
        # uid -> when to try again; absent: now; infinite: when something changes
        self._failures: dict[str, int] = {}
        self._reported: dict[str, str] = {}
        # uid -> the message of its condition PodScheduled

    async def run(self) -> NoReturn:
        nodes = Informer(self._client, NODES, ScheduledNode, sink=self._nodes, clock=self._clock)
        pods = Informer(self._client, PODS, Pod, sink=self, clock=self._clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run(), name="scheduler/nodes")
            group.create_task(pods.run(), name="scheduler/pods")
            await nodes.synced.wait()
            await pods.synced.wait()
            group.create_task(self._cycle(), name="scheduler/cycle")
        raise AssertionError("a task group of endless tasks ended")

    def replace_all(self, items: "Sequence[Pod]") -> None:
        self._pods = {item.metadata.uid: item for item in items}
        self._wake_all()

    def upsert(self, item: Pod) -> None:
        """Store a pod; a change of its metadata or spec requeues it."""
        uid = item.metadata.uid
        before = self._pods.get(uid)
        self._pods[uid] = item
        if before is None or _is_changed(before, item):
            self._retry_at.pop(uid, None)
            self._wake.set()
        if item.is_terminal and item.spec.node_name:
            self._wake_all()
        elif item.spec.node_name and (before is None or not before.spec.node_name):
            self._wake_spread()

    def discard(self, item: Pod) -> None:
        """Remove a pod; the end of a bound one requeues unschedulable pods."""
        uid = item.metadata.uid
        self._pods.pop(uid, None)
        for by_uid in (self._retry_at, self._failures, self._reported):
            by_uid.pop(uid, None)
        if item.spec.node_name:
            self._wake_all()

    def _wake_all(self) -> None:
        self._retry_at.clear()
        self._wake.set()

    def _wake_spread(self) -> None:
        """Requeue pods with spread constraints: the distribution changed."""
        for uid in list(self._retry_at):
            pod = self._pods.get(uid)
            if pod is not None and not pod.spec.node_name and has_strict_spread(pod):
                self._retry_at.pop(uid)
                self._wake.set()

    def _pending(self) -> list[Pod]:
        now = self._clock.monotonic()
        mine = (
            pod
            for uid, pod in self._pods.items()
            if pod.spec.scheduler_name == self._profile
            and not pod.spec.node_name
            and not pod.spec.scheduling_gates
            and pod.metadata.deletion_timestamp is None
            and not pod.is_terminal
            and self._retry_at.get(uid, now) <= now
        )
        return sorted(
            mine, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "")
        )

    async def _cycle(self) -> NoReturn:
        while True:
            pending = self._pending()
            if not pending:
                self._wake.clear()
                await self._sleep()
                continue
            pod = pending[0]
            try:
                await self._schedule(pod)
            except (ExtenderError, KubeError) as error:
                await self._fail(pod, str(error))

    async def _sleep(self) -> None:
        now = self._clock.monotonic()
        times = [at for at in self._retry_at.values() if at != float("inf")]
        try:
            async with asyncio.timeout(max(0.01, min(times) - now) if times else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _schedule(self, pod: Pod) -> None:
        try:
            raw = await self._client.get(
                PODS, msgspec.Raw, pod.metadata.name, namespace=pod.metadata.namespace
            )
        except NotFound:
            self.discard(pod)
            return
        feasible, reasons = self._in_tree(pod)
        refused: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        if feasible:
            feasible, refused, unresolvable = await self._extender.filter(raw, feasible)
        if not feasible:
            reasons += [*refused.values(), *unresolvable.values()]
            await self._preempt(pod, raw, set(unresolvable))
            await self._unschedulable(pod, reasons)
            return
        scores = await self._extender.prioritize(raw, feasible) if len(feasible) > 1 else {}
        node = max(feasible, key=lambda name: (scores.get(name, 0), name))
        meta = pod.metadata
        await self._extender.bind(namespace=meta.namespace, name=meta.name, uid=meta.uid, node=node)
        self._failures.pop(meta.uid, None)
        self._retry_at[meta.uid] = float("inf")

    def _in_tree(self, pod: Pod) -> tuple[list[str], list[str]]:
        """Return the nodes that pass, and a refusal for each other node."""
        passing: list[str] = []
        reasons: list[str] = []
        demand = demand_of(pod.spec)
        current = {name: node_facts(node.node) for name, node in self._nodes.by_name.items()}
        spread = nodes_left(pod, current, self._pods.values())
        for name, node in sorted(self._nodes.by_name.items()):
            facts = current[name]
            if not facts.is_placeable or not may_go_to(facts, _constraints(pod)):
                reasons.append("node(s) didn't match Pod's node affinity/selector")
            elif isinstance(demand, Demand) and self._free(node, demand.resource) < demand.units:
                reasons.append(f"Insufficient {demand.resource}")
            elif name not in spread:
                reasons.append("node(s) didn't match pod topology spread constraints")
            else:
                passing.append(name)
        return passing, reasons

    def _free(self, node: ScheduledNode, resource: str) -> int:
        return node.allocatable(resource) - sum(
            demand.units
            for pod in self._pods.values()
            if pod.spec.node_name == node.name and not pod.is_terminal
            if isinstance(demand := demand_of(pod.spec), Demand) and demand.resource == resource
        )

    async def _preempt(self, pod: Pod, raw: msgspec.Raw, hopeless: set[str]) -> None:
        """Evict pods of lower priority from one node, if the extender agrees that this is enough."""
        if pod.spec.preemption_policy == "Never":
            return
        candidates = {
            name: victims
            for name in self._nodes.by_name
            if name not in hopeless and (victims := self._victims(pod, name))
        }
        if not candidates:
            return
        kept = await self._extender.preempt(
            raw, {name: [item.metadata.uid for item in pods] for name, pods in candidates.items()}
        )
        if not kept:
            return
        node = min(kept, key=lambda name: (len(kept[name]), name))
        meta = pod.metadata
        await self._write_status(
            pod,
            self._client.merge_patch(
                PODS,
                {"status": {"nominatedNodeName": node}},
                name=meta.name,
                namespace=meta.namespace,
                subresource="status",
            ),
        )
        for victim in candidates[NodeName(node)]:
            if victim.metadata.uid in kept[node]:
                meta = victim.metadata
                await self._client.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid)

    def _victims(self, pod: Pod, node: NodeName) -> list[Pod]:
        """Return the fewest pods of lower priority that free enough of the resource."""
        demand = demand_of(pod.spec)
        if not isinstance(demand, Demand):
            return []
        facts = node_facts(self._nodes.by_name[node].node)
        if not facts.is_placeable or not may_go_to(facts, _constraints(pod)):
            return []
        free = self._free(self._nodes.by_name[node], demand.resource)
        lower = sorted(
            (
                other
                for other in self._pods.values()
                if other.spec.node_name == node
                and not other.is_terminal
                and (other.spec.priority or 0) < (pod.spec.priority or 0)
            ),
            key=lambda other: other.spec.priority or 0,
        )
        victims: list[Pod] = []
        for other in lower:
            if free >= demand.units:
                break
            theirs = demand_of(other.spec)
            if isinstance(theirs, Demand) and theirs.resource == demand.resource:
                victims.append(other)
                free += theirs.units
        return victims if free >= demand.units else []

    async def _unschedulable(self, pod: Pod, reasons: list[str]) -> None:
        counts = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
        text = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        total = len(self._nodes.by_name)
        await self._write_message(pod, f"0/{total} nodes are available: {text}.")
        self._retry_at[pod.metadata.uid] = float("inf")

    async def _fail(self, pod: Pod, message: str) -> None:
        """Retry with backoff after an error other than missing capacity."""
        uid = pod.metadata.uid
        failures = self._failures.get(uid, 0) + 1
        self._failures[uid] = failures
        delay_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (failures - 1))
        self._retry_at[uid] = self._clock.monotonic() + delay_s
        _log.warning("scheduling failed", pod=pod.metadata.name, error=message)
        await self._write_message(pod, message)

    async def _write_message(self, pod: Pod, message: str) -> None:
        uid = pod.metadata.uid
        if self._reported.get(uid) == message:
            return
        self._reported[uid] = message
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        # As kube-scheduler's strategic merge patch does, this keeps the conditions of others.
        body = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {
                "name": pod.metadata.name,
                "namespace": pod.metadata.namespace,
                "uid": uid,
            },
            "status": {"conditions": [condition]},
        }
        await self._write_status(
            pod,
            self._client.apply(PODS, body, field_manager=FIELD_MANAGER, subresource="status"),
        )

    async def _write_status(self, pod: Pod, write: "Awaitable[object]") -> None:
        try:
            await write
        except KubeError as error:
            _log.warning("status not written", pod=pod.metadata.name, error=str(error))


def _constraints(pod: Pod) -> Constraints:
    return Constraints(
        node_selector=pod.spec.node_selector,
        affinity=pod.spec.affinity,
        tolerations=tuple(pod.spec.tolerations or ()),
    )


def _is_changed(before: Pod, after: Pod) -> bool:
    """Return whether more than the pod's status changed."""
    return (before.metadata.annotations, before.metadata.labels, before.spec) != (
        after.metadata.annotations,
        after.metadata.labels,
        after.spec,
    )

"""A pool that scales on an API server in memory, and processes that hand its new node over and may end anywhere.

The node `n1` came for the pods: it has two devices, the label of its request and the startup taint. A signal of the
request is there, too. Only what the API server has survives a process.
"""

import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from api.annotations import decode_reservation
from api.clock import Instant
from api.foreign.core import Pod, Toleration
from api.names import (
    AGENT_NOT_READY_TAINT,
    CAPACITY_GATE,
    COMPONENT_LABEL,
    POOL_LABEL,
    RESERVATION_ANNOTATION,
    RESOURCE_PREFIX,
    SCALE_REQUEST_LABEL,
    SCALE_SIGNAL,
    NodeName,
    PodUid,
    PoolName,
    ReservationId,
)
from autoscaling.parameters import scaling_parameters
from autoscaling.scaling_model import RequestId, ScalingPlan, Supply
from kernelcache.cache_index import CacheIndex
from kube.client import KubeClient
from kube.errors import KubeError
from kube.resources import NODES, PODS
from manifests.constants import DEFAULT_NAMESPACE
from manifests.install.crds import build_crds
from pool.model import PodFacts
from pool.placement.planner import PlacementRefused
from reconciler.informer_stores import InformerStores
from reconciler.scaling.capacity_holds import CapacityHolds
from reconciler.scaling.gated_pods import gated_pods
from reconciler.scaling.handover import node_handover
from reconciler.scaling.leaving_nodes import LeavingNodes
from reconciler.scaling.view import PoolScaling, scaling_view
from scheduler.context import ExtenderContext
from simulator.apiserver.server import InMemoryApiServer
from tests.component.reconciler.cluster import Cluster
from tests.support.builders import at
from tests.support.client_of_api import a_client, an_api_with_client
from tests.support.controllers import a_context
from tests.support.loop_clock import LoopClock

Json = dict[str, Any]

POOL = PoolName("whole")
RESOURCE = f"{RESOURCE_PREFIX}{POOL}"
N1 = NodeName("n1")
REQUEST = RequestId("whole-0123456789")
TAINT = {"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
OTHER_POD = PodUid("uid-of-another-pod")
NOTHING_LEFT = 20
"""More rounds than anything takes."""


class Clock(LoopClock):
    def instant(self) -> Instant:
        return at(self.monotonic())


@dataclass
class Process:
    """A leader: what it knows, and its controllers of autoscaling."""

    cluster: Cluster
    ids: "itertools.count[int]"
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        cluster = self.cluster
        state = cluster.allocation_state
        scheduling = ExtenderContext(
            index=state.index,
            reader=state.reader,
            allocation_state=state,
            binder=None,  # type: ignore[arg-type]  # nothing is bound here
            new_id=lambda: ReservationId(f"r{next(self.ids)}"),
            now=self.clock.instant,
            is_ready=lambda: True,
        )
        context = a_context(
            stores=InformerStores(state, cluster.catalog, CacheIndex()),
            client=cluster.client,
            clock=self.clock,
        )
        self.context = dataclasses.replace(context, scheduling=scheduling)
        self.view = self.context.shared(scaling_view)
        self.gated = self.context.shared(gated_pods)
        self.handover = node_handover(self.context)
        self.capacity = CapacityHolds(self.context, self.gated)
        self.leaving = LeavingNodes(state.index, state)

    @property
    def reader(self) -> Any:
        return self.cluster.allocation_state.reader

    async def observe(self) -> None:
        """See the world, and plan: the waiting pods are for the node, oldest first, as many as fit."""
        await self.cluster.observe()
        pool = self.cluster.allocation_state.index.pool(POOL)
        if pool is None or not pool.scales:
            self.view.pools.clear()
            return
        parameters = scaling_parameters(self.cluster.catalog.pools[POOL], pool)
        assert parameters is not None
        gated = [pod for pod in self.waiting() if pod.awaits_capacity]
        assigned = {REQUEST: tuple(pod.uid for pod in gated[:2])}
        self.view.pools[POOL] = PoolScaling(
            parameters=parameters,
            supply=Supply(),
            plan=ScalingPlan(assigned=assigned),
            observed=(),
            history=(),
            at=self.clock.instant().utc,
        )

    def waiting(self) -> list[PodFacts]:
        found: list[PodFacts] = self.reader.pods.waiting(f"{RESOURCE_PREFIX}{POOL}")
        return found

    async def hand_over(self) -> float | None:
        return await self.handover.reconcile(N1)

    async def give(self) -> float | None:
        return await self.capacity.reconcile(POOL)

    async def until_stable(self) -> None:
        """Run all controllers until nothing is written any more."""
        for _ in range(NOTHING_LEFT):
            await self.observe()
            self.cluster.api.requests.clear()
            for step in self.steps():
                try:
                    await step()
                except KubeError:
                    self.cluster.api.faults.clear()
            if not self.cluster.writes():
                return
        raise AssertionError("it does not come to rest")

    def steps(self) -> "Iterable[Callable[[], Awaitable[object]]]":
        return (
            lambda: self.leaving.reconcile(N1),
            lambda: self.cluster.node_marks.reconcile(N1),
            self.hand_over,
            self.give,
        )


@dataclass
class ScalingRun:
    """The world; `process` is the present leader."""

    api: InMemoryApiServer
    admin: KubeClient
    """Sees the world without faults in its way."""
    client: KubeClient
    resource: str = RESOURCE
    ids: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.process = self.a_process()

    def a_process(self) -> Process:
        return Process(Cluster(self.api, self.client), self.ids)

    async def restart(self) -> Process:
        """The process ends where it is, and another one takes over."""
        self.api.faults.clear()
        self.process = self.a_process()
        await self.process.observe()
        return self.process

    async def add_gated_pod(self, name: str, *, units: int = 1, **spec: Any) -> None:
        """As admission has left it: no node had units."""
        limits = {self.resource: str(units)}
        container = {"name": "c0", "image": "cuda", "resources": {"limits": limits}}
        note = f'{{"id":"admission-{name}","pool":"{POOL}"}}'
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {POOL_LABEL: POOL},
                "annotations": {RESERVATION_ANNOTATION: note},
            },
            "spec": {
                "containers": [container],
                "schedulingGates": [{"name": CAPACITY_GATE}],
                **spec,
            },
        }
        await self.admin.create(PODS, body)

    async def add_signal(self, request: RequestId = REQUEST) -> None:
        labels = {COMPONENT_LABEL: SCALE_SIGNAL, SCALE_REQUEST_LABEL: request}
        meta = {"name": f"scale-{request}", "namespace": DEFAULT_NAMESPACE, "labels": labels}
        spec = {"schedulerName": "nobody", "containers": [{"name": "signal", "image": "i"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await self.admin.create(PODS, body)

    async def allocatable(self, units: int) -> None:
        """kubelet tells of the units."""
        status = {"allocatable": {self.resource: str(units)}}
        await self.admin.merge_patch(NODES, {"status": status}, name=N1, subresource="status")

    async def pods(self) -> dict[str, Pod]:
        found = await self.admin.list_(PODS, Pod, namespace="default")
        return {item.metadata.name: item for item in found.items}

    async def signals(self) -> list[str]:
        found = await self.admin.list_(PODS, Pod, namespace=DEFAULT_NAMESPACE)
        return [item.metadata.name for item in found.items]

    async def taints(self) -> list[str]:
        node = await self.admin.get(NODES, Json, N1)
        return [item["key"] for item in node["spec"].get("taints", [])]

    async def gates(self) -> dict[str, list[str]]:
        return {
            name: [gate.name for gate in pod.spec.scheduling_gates or ()]
            for name, pod in (await self.pods()).items()
        }

    async def reserved(self) -> dict[str, tuple[str, list[str]]]:
        """Return node and units by pod, as the annotations of pods without a gate say."""
        found = {}
        for name, pod in (await self.pods()).items():
            note = decode_reservation(pod.metadata.annotation(RESERVATION_ANNOTATION))
            if note is not None and note.node:
                units = [str(unit) for units in note.devices.values() for unit in units]
                found[name] = (note.node, units)
        return found

    def refuses_other_pods(self) -> bool:
        """Whether a pod that tolerates everything gets no unit of the node."""
        state = self.process.cluster.allocation_state
        pool = state.index.pool(POOL)
        assert pool is not None
        pod = next(iter(state.reader.pods.all()))
        plan = state.reader.plan_bind(N1, pool, pod.demand, uid=OTHER_POD)
        return isinstance(plan, PlacementRefused)

    async def is_handed_over(self, *names: str) -> None:
        """Every pod has its unit and no gate, and the node neither taint nor signal."""
        assert await self.taints() == []
        assert await self.signals() == []
        gates = await self.gates()
        assert [gates[name] for name in names] == [[]] * len(names)
        reserved = await self.reserved()
        state = self.process.cluster.allocation_state
        units: list[str] = []
        for name in names:
            pod = (await self.pods())[name]
            held = state.ledger.of_pod(PodUid(pod.metadata.uid))
            assert held is not None
            assert reserved[name] == ("n1", list(held.units))
            units += held.units
        assert len(units) == len(set(units))


def make_pool_unreadable(run: ScalingRun) -> None:
    """A leader that starts after a rollback cannot read the pool."""
    cluster = run.process.cluster
    cluster.pools.replace_all([])
    cluster.allocation_state.index.replace_unread_pools({POOL: RESOURCE})


EVERYWHERE = [Toleration(operator="Exists")]


@asynccontextmanager
async def a_scaling_run(
    *pods: str, is_ready: bool = True, resource: str = RESOURCE
) -> AsyncIterator[ScalingRun]:
    """The node has come for these pods; its agent has told of its devices."""
    clock = LoopClock()
    async with (
        an_api_with_client(namespace=DEFAULT_NAMESPACE, definitions=build_crds()) as (api, admin),
        # Of its own: its first request has to connect, which suspends most.
        a_client(api, clock) as client,
    ):
        world = Cluster(api, admin)
        await world.add_pool(
            resource={"name": resource},
            assignment={"requireAnnotation": False},
            autoscaling={"shapes": [{"name": "pair", "devices": 2}]},
        )
        await world.add_node(**{SCALE_REQUEST_LABEL: REQUEST})
        await admin.merge_patch(NODES, {"spec": {"taints": [TAINT]}}, name=N1)
        for name in ("n1-0", "n1-1"):
            await world.add_device(name)
        run = ScalingRun(api, admin, client, resource=resource)
        await run.allocatable(2 if is_ready else 0)
        await run.add_signal()
        for name in pods:
            await run.add_gated_pod(name)
        await world.observe()
        await world.node_marks.reconcile(N1)
        await run.process.observe()
        api.requests.clear()
        yield run

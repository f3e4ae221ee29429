"""`pool.scaling` of one process at an API server in memory, with what others write scripted by the test.

Nothing runs by itself: `run_pass` shows the world to the caches, as informers would, and reconciles the pool until it
has planned.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from api.foreign.core import Node, Pod
from api.foreign.karpenter import NodeClaim, NodePool
from api.kinds.autoscaling import ScalingBackend
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from api.names import (
    AGENT_NOT_READY_TAINT,
    CAPACITY_GATE,
    RESOURCE_PREFIX,
    SCALE_REQUEST_LABEL,
    PoolName,
)
from kube.client import KubeClient
from kube.resources import GPU_DEVICES, GPU_POOLS, NODE_CLAIMS, NODE_POOLS, NODES, PODS
from manifests.constants import DEFAULT_NAMESPACE
from manifests.install.crds import build_crds
from pool.facts import node_facts, pod_facts
from reconciler.scaling.controller import SPEC
from reconciler.scaling.view import ScalingView, scaling_view
from reconciler.sinks.device import observe_device
from reconciler.sinks.karpenter import observe_claim, observe_node_pool
from reconciler.sinks.pod import PodSink
from reconciler.sinks.scale_signal import LABEL_SELECTOR, SignalPod, observe_signal
from simulator.apiserver.server import InMemoryApiServer
from simulator.karpenter.karpenter_crds import karpenter_crds
from tests.support.client_of_api import a_client, an_api_with_client
from tests.support.controllers import a_context, new_stores
from tests.support.listings import replace_listed
from tests.support.loop_clock import ServerClock
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from reconciler.controller_spec import ControllerContext, Reconcile

Json = dict[str, Any]
POOL = PoolName("training")
TWO: Json = {"name": "two", "devices": 2}
ALL = frozenset(ScalingBackend)
BATCH_S = 2.0
"""Longer than a batch is open without another pod."""


def _clock_of_api() -> ServerClock:
    """Return a clock that agrees with the API server's about the times of objects."""
    clock = ServerClock()
    clock.wall_offset_s = 0.0
    return clock


@dataclass
class ScalingRun:
    """The world (`api`, `admin`), and a process that follows it."""

    api: InMemoryApiServer
    admin: KubeClient
    client: KubeClient
    """Of the process; its first request has to connect."""
    clock: ServerClock = field(default_factory=_clock_of_api)
    has_karpenter: bool = True
    recorder: RecordedEvents = field(default_factory=RecordedEvents)

    def __post_init__(self) -> None:
        self.start()

    def start(self, **settings: Any) -> None:
        """Begin a new process, which knows nothing."""
        self.stores = new_stores()
        self.pods = PodSink(self.stores.allocation_state, self.clock.instant)
        self.context: ControllerContext = a_context(
            stores=self.stores,
            client=self.client,
            recorder=self.recorder,
            clock=self.clock,
            **settings,
        )
        self.reconcile: Reconcile = SPEC.build(self.context)

    @property
    def view(self) -> ScalingView:
        return self.context.shared(scaling_view)

    async def observe(self) -> None:
        """Let the process see the world as it is now."""
        stores, admin = self.stores, self.admin
        replace_listed(stores.pool_sink, await admin.list_(GPU_POOLS, GPUPool))
        nodes = await admin.list_as(NODES, Node, node_facts)
        stores.node_sink.replace_all(nodes.items)
        devices = await admin.list_as(GPU_DEVICES, GPUDevice, observe_device)
        stores.device_sink.replace_all(devices.items)
        self.pods.replace_all((await admin.list_as(PODS, Pod, pod_facts)).items)
        if self.has_karpenter:
            claims = await admin.list_as(NODE_CLAIMS, NodeClaim, observe_claim)
            replace_listed(stores.node_claims, claims)
            node_pools = await admin.list_as(NODE_POOLS, NodePool, observe_node_pool)
            stores.node_pools.replace_all(node_pools.items)
        signals = await admin.list_as(
            PODS, SignalPod, observe_signal, label_selector=LABEL_SELECTOR
        )
        stores.scale_signals.replace_all(signals.items)

    async def run_pass(self, pool: PoolName = POOL) -> float | None:
        """Show the world and reconcile, until the waiting pods are planned; return when to reconcile again."""
        await self.observe()
        again_s = await self.reconcile(pool)
        await asyncio.sleep(BATCH_S)
        if again_s is not None and again_s < BATCH_S:
            await self.observe()
            again_s = await self.reconcile(pool)
        await self.observe()
        return again_s

    # --- what is there -------------------------------------------------------------------------

    async def signals(self) -> list[Json]:
        found = await self.admin.list_(PODS, Json, namespace=DEFAULT_NAMESPACE)
        return found.items

    async def ids(self) -> list[str]:
        return sorted(
            signal["metadata"]["labels"][SCALE_REQUEST_LABEL] for signal in await self.signals()
        )

    async def status(self) -> Json:
        pool = await self.admin.get(GPU_POOLS, Json, POOL)
        found: Json = pool.get("status", {}).get("autoscaling", {})
        return found

    def notes(self) -> list[tuple[str, str]]:
        """Return reason and note of the Events since the last call."""
        return [(item.reason, item.note) for item in self.recorder.taken()]

    def writes(self) -> list[str]:
        """Return method and path of the process' writes since the last call."""
        found = [f"{write.method} {write.path}" for write in self.api.requests.writes()]
        self.api.requests.clear()
        return found

    # --- what others do ------------------------------------------------------------------------

    async def add_pool(self, name: str = POOL, *shapes: Json, **autoscaling: Any) -> None:
        spec = {
            "assignment": {"requireAnnotation": False},
            "autoscaling": {"shapes": list(shapes or (TWO,)), **autoscaling},
        }
        await self.admin.create(GPU_POOLS, _object(GPU_POOLS, name, spec=spec))

    async def add_node_pool(self, name: str = POOL, **spec: Any) -> None:
        template = {
            "requirements": [{"key": SCALE_REQUEST_LABEL, "operator": "Exists"}],
            "startupTaints": [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}],
        }
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"}
        body = {"template": {"spec": template}, "disruption": disruption, **spec}
        await self.admin.create(NODE_POOLS, _object(NODE_POOLS, name, spec=body))

    async def add_pods(self, *names: str, pool: str = POOL, units: int = 1, **spec: Any) -> None:
        for name in names:
            limits = {f"{RESOURCE_PREFIX}{pool}": str(units)}
            container = {"name": "c", "image": "cuda", "resources": {"limits": limits}}
            gates = [{"name": CAPACITY_GATE}]
            body = _object(PODS, name, spec={"containers": [container], "schedulingGates": gates})
            body["spec"].update(spec)
            body["metadata"]["namespace"] = "default"
            await self.admin.create(PODS, body)

    async def delete_pods(self, *names: str) -> None:
        for name in names:
            await self.admin.delete(PODS, name, namespace="default", grace_period_s=0)

    async def launch(self, id_: str, *, name: str = "claim-1") -> None:
        """Make a NodeClaim for a signal, as Karpenter does."""
        labels = {SCALE_REQUEST_LABEL: id_, "karpenter.sh/nodepool": POOL}
        body = _object(NODE_CLAIMS, name, spec={}, labels=labels)
        await self.admin.create(NODE_CLAIMS, body)

    async def add_node(
        self, name: str, *, devices: int = 2, pool: str = POOL, labels: Json | None = None
    ) -> None:
        """Let a node of a NodePool come, with its devices in the pool."""
        labels = {"karpenter.sh/nodepool": pool, **(labels or {})}
        await self.admin.create(NODES, _object(NODES, name, spec={}, labels=labels))
        await self.admin.merge_patch(NODES, {"spec": {"taints": None}}, name=name)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await self.admin.merge_patch(NODES, {"status": ready}, name=name, subresource="status")
        for number in range(devices):
            device = f"{name}-{number}"
            await self.admin.create(GPU_DEVICES, _object(GPU_DEVICES, device, spec={}))
            status = {"nodeName": name, "uuid": f"GPU-{device}", "poolRef": {"name": pool}}
            await self.admin.merge_patch(
                GPU_DEVICES, {"status": status}, name=device, subresource="status"
            )

    async def set_spec(self, **spec: Any) -> None:
        await self.admin.merge_patch(GPU_POOLS, {"spec": spec}, name=POOL)


def _object(resource: Any, name: str, *, spec: Json, labels: Json | None = None) -> Json:
    metadata: Json = {"name": name, **({"labels": labels} if labels else {})}
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": metadata, "spec": spec}


@asynccontextmanager
async def a_scaling_run(*, has_karpenter: bool = True) -> AsyncIterator[ScalingRun]:
    """A pool of one shape and its NodePool, no node, and no pod."""
    kinds = karpenter_crds() if has_karpenter else []
    async with (
        an_api_with_client(namespace=DEFAULT_NAMESPACE, definitions=[*build_crds(), *kinds]) as (
            api,
            admin,
        ),
        a_client(api, ServerClock()) as client,
    ):
        run = ScalingRun(api, admin, client, has_karpenter=has_karpenter)
        async with run.context.ending:
            if has_karpenter:
                await run.add_node_pool()
            await run.add_pool()
            api.requests.clear()
            yield run

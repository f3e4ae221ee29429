"""A cluster with a life of its own: six nodes, three pools, pods that come, wait, are bound and end (`demo.life_script`).

It is driven step by step, or lives until it is cancelled. The server is the real one, as in the narrated demo.
"""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from agent.problems.condition import DegradedConditionWriter
from agent.problems.registry import ProblemRegistry
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.meta import PartialObjectMetadata
from api.names import API_VERSION, NodeName
from demo import life_script
from demo.cluster import DemoCluster
from demo.fleet import A10, H100, H200, L40S, Fleet, a_device
from demo.objects import a_pod
from demo.observed_node import is_condition
from kube.errors import NotFound
from kube.resources import EVENTS, GPU_NODE_INVENTORIES, GPU_POOLS, PODS
from telemetry.conditions import InventoryCondition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from simulator.node.node_agent import FakeDevice

DEVICES_PER_NODE: Final = 8
MIG_PROFILE: Final = "1g.10gb"
INSTANCES_PER_DEVICE: Final = 7
SLICES_PER_DEVICE: Final = 4
TRAINING_NODES: Final = ("gpu-0", "gpu-1", "gpu-2")
SLICED_NODE: Final = "gpu-3"
MIG_NODE: Final = "gpu-4"
MIXED_NODE: Final = "gpu-5"
"""Half of its devices are in no pool."""
NODES: Final = (*TRAINING_NODES, SLICED_NODE, MIG_NODE, MIXED_NODE)
NAMESPACES: Final = ("ml-team", "research", "serving", "students")
POOLS: Final = (
    life_script.ScriptedPool(
        name="training",
        units=len(TRAINING_NODES) * DEVICES_PER_NODE,
        sizes=(1, 1, 2, 2, 4, 4, 8),
        pods=("train", "finetune", "eval"),
        namespaces=("ml-team", "ml-team", "research"),
    ),
    life_script.ScriptedPool(
        name="inference",
        units=DEVICES_PER_NODE * INSTANCES_PER_DEVICE,
        sizes=(2, 4, 4, 7, 14),
        pods=("serve", "embed"),
        namespaces=("serving",),
    ),
    life_script.ScriptedPool(
        name="notebooks",
        units=(DEVICES_PER_NODE + DEVICES_PER_NODE // 2) * SLICES_PER_DEVICE,
        sizes=(1, 1, 2, 4, 8),
        pods=("notebook", "lab"),
        namespaces=("research", "students", "students"),
    ),
)
RESERVATION_TTL_S: Final = 20
"""Seconds that a reservation lives in the pool of the pods that no scheduler takes."""
FAULT: Final = "Xid 79"
WARM_UP: Final = 60
"""Steps until the pools are about full."""
PAUSE_S: Final = 0.8
STABLE_WITHIN_S: Final = 5.0
READY_WITHIN_S: Final = 120.0
HEARTBEAT_EVERY_S: Final = 45.0
"""An agent counts as silent after two minutes."""
TIDY_EVERY: Final = 100
"""Steps."""
MOST_EVENTS: Final = 200
_POLL_S: Final = 0.05


def device_table(node: str) -> "list[FakeDevice]":
    numbers = range(DEVICES_PER_NODE)
    match node:
        case _ if node in TRAINING_NODES:
            return [a_device(H200, node, number, numa_node=number // 4) for number in numbers]
        case "gpu-3":
            return [a_device(L40S, node, number, numa_node=number // 4) for number in numbers]
        case "gpu-4":
            mig = (MIG_PROFILE, INSTANCES_PER_DEVICE)
            return [
                a_device(H100, node, number, numa_node=number // 4, mig=mig) for number in numbers
            ]
        case _:
            half = DEVICES_PER_NODE // 2
            return [a_device(L40S if number < half else A10, node, number) for number in numbers]


FLEET: Final = Fleet(nodes=NODES, devices_of=device_table, namespaces=NAMESPACES, has_caches=False)


def pool_objects() -> list[dict[str, Any]]:
    training: dict[str, Any] = {
        "allocation": {"mode": "Exclusive"},
        "access": {"namespaces": ["ml-team", "research"]},
    }
    inference = {"allocation": {"mode": "MIG", "migProfile": MIG_PROFILE}}
    notebooks = {
        "allocation": {"mode": "TimeSlice", "slicesPerDevice": SLICES_PER_DEVICE},
        "reservation": {"ttl": f"{RESERVATION_TTL_S}s"},
    }
    pools = (
        ("training", "NVIDIA-H200", training),
        ("inference", "NVIDIA-H100", inference),
        ("notebooks", "NVIDIA-L40S", notebooks),
    )
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "GPUPool",
            "metadata": {"name": name},
            "spec": {
                "deviceSelector": {"include": {"products": [product]}},
                "assignment": {"requireAnnotation": False},
                **spec,
            },
        }
        for name, product, spec in pools
    ]


@final
class ScriptedCluster:
    """Carries out the script of a seed on a cluster that is ready."""

    def __init__(self, cluster: DemoCluster, seed: int) -> None:
        self.cluster = cluster
        self._clock = cluster.clock
        devices = [(node, item) for node in NODES[:-1] for item in range(DEVICES_PER_NODE)]
        self._script = life_script.LifeScript(seed, POOLS, tuple(devices))
        self._steps = 0
        self._heard_at = self._clock.monotonic()

    async def live(self, pause_s: float = PAUSE_S) -> NoReturn:
        """Make steps until cancelled."""
        while True:
            await asyncio.sleep(pause_s)
            await self.step()

    async def step(self) -> life_script.Action:
        """Carry out the next action of the script, and return it once the cluster shows it."""
        action = self._script.next()
        match action:
            case life_script.CreatePod():
                await self._create(action)
            case life_script.EndPod():
                await self._end(action)
            case life_script.FailDevice():
                await self._report(action.node, action.number, FAULT)
            case life_script.RecoverDevice():  # pragma: no branch  # mypy proves that no case is missing
                await self._report(action.node, action.number, "")
        self._steps += 1
        if self._clock.monotonic() - self._heard_at > HEARTBEAT_EVERY_S:
            self._heard_at = self._clock.monotonic()
            for agent in self.cluster.agents.values():
                await agent.report()
        if self._steps % TIDY_EVERY == 0:
            await self._delete_old_events()
        return action

    async def _create(self, action: life_script.CreatePod) -> None:
        body = a_pod(action.name, action.pool, action.units, namespace=action.namespace)
        if not action.is_scheduled:
            body["spec"]["schedulerName"] = "a-scheduler-that-does-not-run"
        await self.cluster.create_pod(body)
        if action.is_scheduled:
            await self._wait(lambda: self._is_tried(action))

    async def _is_tried(self, action: life_script.CreatePod) -> bool:
        """Say whether kube-scheduler has bound the pod, or said why not."""
        pod = await self.cluster.pod(action.name, action.namespace)
        if pod is None or pod.spec.node_name:
            return True
        return bool(await self.cluster.why_unscheduled(action.name, action.namespace))

    async def _end(self, action: life_script.EndPod) -> None:
        """End a pod that runs, and delete it; one that waits is deleted as its user would."""
        pod = await self.cluster.pod(action.name, action.namespace)
        if pod is None:
            return
        if pod.spec.node_name:
            await self.cluster.kubelet.finish(pod)
        await self.cluster.client.delete(
            PODS, action.name, namespace=action.namespace, grace_period_s=0
        )

    async def _report(self, node: str, number: int, fault: str) -> None:
        uuid = device_table(node)[number].uuid
        await self.cluster.agents[node].report_fault(uuid, fault)

    async def _wait(self, is_so: "Callable[[], Awaitable[bool]]") -> None:
        """Wait for what the cluster does by itself; a machine that is busy is not waited for long."""
        until = self._clock.monotonic() + STABLE_WITHIN_S
        while not await is_so() and self._clock.monotonic() < until:  # noqa: ASYNC110  # seen by reading
            await asyncio.sleep(_POLL_S)

    async def _delete_old_events(self) -> None:
        """Delete old Events, as API servers do after an hour, and the log of requests."""
        client = self.cluster.client
        events = (await client.list_(EVENTS, PartialObjectMetadata)).items
        events.sort(key=lambda event: event.metadata.creation_timestamp or "")
        for event in events[:-MOST_EVENTS]:
            meta = event.metadata
            try:
                await client.delete(EVENTS, meta.name, namespace=meta.namespace)
            except NotFound:
                continue
        self.cluster.api.requests.clear()


@asynccontextmanager
async def living_cluster(
    folder: "Path", log: "Path", *, seed: int, warm_up: int = WARM_UP
) -> "AsyncIterator[ScriptedCluster]":
    """Start the cluster; inside the context its nodes and pools are ready, and `warm_up` steps are made.

    Raises:
        OSError: it did not become ready.
    """
    async with DemoCluster(folder, log, FLEET) as cluster:
        for node in NODES:
            await cluster.join(node)
        for pool in pool_objects():
            await cluster.client.create(GPU_POOLS, pool)
        await _until_ready(cluster)
        for node in NODES:
            await _set_agent_working(cluster, node)
        living = ScriptedCluster(cluster, seed)
        for _ in range(warm_up):
            await living.step()
        yield living


async def _set_agent_working(cluster: DemoCluster, node: str) -> None:
    """Write the condition that a real agent without problems writes."""
    writer = DegradedConditionWriter(
        cluster.client, ProblemRegistry(), cluster.clock, node=NodeName(node)
    )
    await writer.reconcile()


async def _until_ready(cluster: DemoCluster) -> None:
    until = cluster.clock.monotonic() + READY_WITHIN_S
    while not await _is_ready(cluster):
        if cluster.clock.monotonic() > until:
            raise OSError(f"nodes and pools were not ready after {READY_WITHIN_S:g} s")
        await asyncio.sleep(_POLL_S)


async def _is_ready(cluster: DemoCluster) -> bool:
    inventories = (await cluster.client.list_(GPU_NODE_INVENTORIES, GPUNodeInventory)).items
    ready = [
        inventory
        for inventory in inventories
        if is_condition(inventory, InventoryCondition.READY_FOR_POOLING, "True")
    ]
    if len(ready) < len(NODES):
        return False
    for pool in POOLS:
        current = (await cluster.pool(pool.name)).status.capacity
        offered = [
            await cluster.allocatable(node, f"gpu.deckhouse.io/{pool.name}") for node in NODES
        ]
        if not current.available == sum(offered) == pool.units:
            return False
    return True

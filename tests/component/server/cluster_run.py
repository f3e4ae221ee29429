"""What operators, users and strangers do in the whole run; who is refused comes again."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

import msgspec

from api.names import ASSIGNMENT_ANNOTATION, WOKEN_ANNOTATION, DeviceName, NodeName
from inventory.identity import device_name
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.resources import (
    EVENTS,
    GPU_CONTROL_PLANE_TERMS,
    GPU_DEVICES,
    GPU_POOLS,
    NODE_FEATURES,
    NODES,
    PODS,
    SECRETS,
    Resource,
)
from manifests import constants
from simulator.node import nfd
from simulator.node.kubelet import register_node
from simulator.node.node_agent import FakeDevice, FakeNodeAgent
from tests.component.server.request_kinds import kind_of, requests_of_ours
from tests.component.server.run_state import Json, at, objects, state_of, true_ones
from tests.support.loop_clock import ServerClock
from tests.support.reviews import a_pod_object, a_pool_object
from tests.support.running_server import SERVER_USER, Cluster, RunningServer

WITHIN_S: Final = 120.0
"""Of virtual time; no backoff is longer."""
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 0.8
TTL_S: Final = 5
REPORT_S: Final = 30.0
"""Between heartbeats of a node's agent."""


def a_device(name: str, number: int, product: str) -> FakeDevice:
    return FakeDevice(
        uuid=f"GPU-{name}",
        address=f"0000:{number + 23:02x}:00.0",
        product=product,
        pci_device="2335",
        memory_mib=143771,
        compute_capability="9.0",
    )


WHOLE_DEVICES: Final = tuple(a_device(f"w{number}", number, "NVIDIA H200") for number in range(3))
SLICED_DEVICE: Final = a_device("sliced", 3, "NVIDIA L40S")
DEVICES: Final = (*WHOLE_DEVICES, SLICED_DEVICE)
POOLS: Final[dict[str, Json]] = {
    "whole": {
        "allocation": {"mode": "Exclusive"},
        "assignment": {"requireAnnotation": False},
        "deviceSelector": {"include": {"products": ["NVIDIA-H200"]}},
    },
    "slow": {
        "allocation": {"mode": "TimeSlice", "slicesPerDevice": 64},
        "scheduling": {"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]},
    },
}
"""One takes its devices by itself, the other by annotation."""


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait with backoff until it holds; a KubeError counts as false."""
    pause_s = FIRST_PAUSE_S
    async with asyncio.timeout(WITHIN_S):
        while True:
            with suppress(KubeError):
                if await holds():
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, pause_s * 2)


def device_of(gpu: FakeDevice) -> DeviceName:
    """Return the name of the device that comes from a GPU of n1."""
    return device_name(NodeName("n1"), gpu.address)


@dataclasses.dataclass
class ClusterRun:
    """A cluster with one server, and the actions of operators, users and other clients; refused ones are retried."""

    cluster: Cluster
    server: RunningServer
    clock: ServerClock

    def __post_init__(self) -> None:
        self._client = self.cluster.client
        self._agents: dict[str, FakeNodeAgent] = {}

    async def until_ready(self) -> None:
        async def is_ready() -> bool:
            assert not self.server.is_over, self.server.ended
            return await self.server.is_ready()

        await eventually(is_ready)

    async def create(self, resource: Resource, body: Json) -> None:
        async def is_created() -> bool:
            with suppress(AlreadyExists):
                await self._client.create(resource, body)
            return True

        await eventually(is_created)

    async def add_node(self) -> None:
        """Three whole devices, and one of 64 slices that no kubelet offers: its pods never fit."""
        await register_node(self._client, "n1", {"gpu.deckhouse.io/whole": len(WHOLE_DEVICES)})
        await self.report("n1", DEVICES)

    async def report(self, node: str, gpus: Sequence[FakeDevice]) -> None:
        """Let the agent of a node tell of these devices, and go on doing so."""
        agent = FakeNodeAgent(self._client, self.clock, node=node, devices=gpus)
        await agent.report()
        self._agents[node] = agent

    async def remove_node(self, name: str) -> None:
        """Take a node away; NFD's garbage collector takes what its agent told."""
        del self._agents[name]
        await self.remove(NODES, name)
        feature = f"gpu-control-plane-agent-{name}"
        await self._client.delete(NODE_FEATURES, feature, namespace=nfd.NAMESPACE)

    async def keep_reporting(self) -> NoReturn:
        """Send the agents' heartbeats."""
        while True:
            await asyncio.sleep(REPORT_S)
            for agent in list(self._agents.values()):
                await agent.report()

    async def add_pool(self, name: str, **spec: Any) -> None:
        spec = {**(spec or POOLS[name]), "reservation": {"ttl": f"{TTL_S}s"}}
        await self.create(GPU_POOLS, {**a_pool_object(name, **spec), "metadata": {"name": name}})

    async def cut(self, name: str, **allocation: Any) -> None:
        """Change how a pool's devices are units; pods that are in the way are evicted."""

        async def is_changed() -> bool:
            body = {"spec": {"allocation": allocation, "maintenance": {"policy": "Evict"}}}
            await self._client.merge_patch(GPU_POOLS, body, name=name)
            return True

        await eventually(is_changed)

    async def has_mode(self, name: str, mode: str) -> bool:
        pool = await self._client.get(GPU_POOLS, Json, name)
        return bool(at(pool, "status", "allocation", "mode") == mode)

    async def annotate_the_sliced_device(self) -> bool:
        body = {"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: "slow"}}}
        await self._client.merge_patch(GPU_DEVICES, body, name=device_of(SLICED_DEVICE))
        return True

    async def has_all_devices(self) -> bool:
        """Say whether both pools have their devices, and can give them out."""
        pools = await objects(self._client, GPU_POOLS)
        totals = {name: at(item, "status", "capacity", "available") for name, item in pools.items()}
        return totals == {"whole": len(WHOLE_DEVICES), "slow": 64}

    async def is_in_state(self, gpu: FakeDevice, state: str) -> bool:
        device = await self._client.get(GPU_DEVICES, Json, device_of(gpu))
        return bool(at(device, "status", "state") == state)

    async def is_said(self, resource: Resource, name: str, condition: str) -> bool:
        return condition in true_ones(
            {"status": {}, **await self._client.get(resource, Json, name)}
        )

    async def remove(self, resource: Resource, name: str) -> None:
        async def is_removed() -> bool:
            with suppress(NotFound):
                await self._client.delete(resource, name)
            return True

        await eventually(is_removed)

    async def is_gone(self, resource: Resource, name: str) -> bool:
        namespace = "default" if resource is PODS else None
        try:
            await self._client.get(resource, Json, name, namespace=namespace)
        except NotFound:
            return True
        return False

    async def give_to_node(self, resource: Resource, name: str) -> None:
        """Make the object the Node's, as earlier versions did."""
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-of-another-life"}
        patch = {"metadata": {"ownerReferences": [owner]}}
        await self._client.merge_patch(resource, patch, name=name)

    async def is_nobodys(self, resource: Resource, name: str) -> bool:
        return not at(await self._client.get(resource, Json, name), "metadata", "ownerReferences")

    async def add_pod(self, name: str, pool: str, scheduler: str = "default-scheduler") -> None:
        body = a_pod_object(1, pool, name, spec={"schedulerName": scheduler})
        body["metadata"] = {"name": name, "namespace": "default"}
        await self.create(PODS, body)

    async def remove_pod(self, name: str) -> None:
        with suppress(NotFound):
            await self._client.delete(PODS, name, namespace="default", grace_period_s=0)

    async def is_bound(self, *names: str) -> bool:
        return all([(await self.cluster.stored_pod(name)).spec.node_name for name in names])

    async def is_woken(self, name: str) -> bool:
        metadata = (await self.cluster.stored_pod(name)).metadata
        return metadata.annotation(WOKEN_ANNOTATION) is not None

    async def is_anybody_nominated(self) -> bool:
        pods = (await self._client.list_(PODS, Json)).items
        return any(pod.get("status", {}).get("nominatedNodeName") for pod in pods)

    async def has_event(self, reason: str, *, count: int = 1) -> bool:
        events = (await self._client.list_(EVENTS, Json)).items
        counts = [
            event.get("series", {}).get("count", 1) for event in events if event["reason"] == reason
        ]
        return max(counts, default=0) >= count

    async def steal_node(self, name: str) -> None:
        """Bind a pod around everybody."""
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        body = {"metadata": {"name": name}, "target": target}
        await self._client.create(PODS, body, namespace="default", name=name, subresource="binding")

    async def bind(self, name: str) -> bool:
        """Ask for a bind as kube-scheduler does; say whether it is bound."""
        uid = (await self.cluster.stored_pod(name)).metadata.uid
        fields = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
        await self.server.call("POST", constants.BIND_PATH, msgspec.json.encode(fields))
        return await self.is_bound(name)

    async def is_sent(self, name: str) -> bool:
        """Ask for a bind; say whether the Binding has left the server, which may refuse at first."""
        await self.bind(name)
        return bool(self.cluster.api.requests.writes(user=SERVER_USER, path=f"/{name}/binding"))

    async def is_checked(self) -> bool:
        """Say whether the pod in doubt was read, more often than reads fail."""
        return list(map(kind_of, requests_of_ours(self.cluster))).count("GET pods") > 3

    async def spoil_secret(self) -> None:
        """Take kube-scheduler's certificate away."""
        await self._client.merge_patch(
            SECRETS,
            {"data": {"scheduler.crt": None}},
            name=constants.SERVING_SECRET,
            namespace=constants.DEFAULT_NAMESPACE,
        )

    async def has_whole_secret(self) -> bool:
        bundle = await self.cluster.bundle()
        return bool(bundle.client.certificate_pem)

    async def term(self) -> int:
        term = await self._client.get(GPU_CONTROL_PLANE_TERMS, Json, constants.LEASE_NAME)
        return int(term["spec"]["number"])

    async def has_term_after(self, number: int) -> bool:
        return await self.term() > number

    async def comes_to(self, expected: Json) -> None:
        """Wait until the state is as wanted; the failure shows both."""

        async def is_so() -> bool:
            return await state_of(self.cluster, self.server) == expected

        try:
            await eventually(is_so)
        except TimeoutError:
            assert await state_of(self.cluster, self.server) == expected

"""Fifty nodes with everything on, and ten minutes in which nothing happens: nobody writes but Leases and heartbeats."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from api.names import AGENT_NOT_READY_TAINT, PRESENT_LABEL, SCALE_REQUEST_LABEL, NodeName
from api.well_known_labels import INSTANCE_TYPE_LABEL
from certs.tls import client_context
from demo.fleet import H100, H200, L40S, MachineSystem, a_device
from demo.node_caches import NodeCaches, cache_settings
from inventory.identity import device_name
from kube.resources import (
    CLUSTER_POLICIES,
    CUSTOM_RESOURCE_DEFINITIONS,
    GKM_CACHES,
    GPU_DEVICES,
    GPU_POOLS,
    NODE_POOLS,
    PODS,
    Resource,
)
from kube.resources import (
    NODES as NODE_KIND,
)
from manifests import constants
from manifests.caches.crds import build_cache_crds
from manifests.nvidia.operator_crds import build_operator_crds
from simulator.karpenter.fake_karpenter import FakeKarpenter
from simulator.node.daemon_sets import FakeDaemonSets
from simulator.node.joining_nodes import JoiningNodes, NodeBehaviour
from simulator.node.kubelet import FakeKubelet, register_node
from simulator.node.node_agent import FakeDevice, FakeNodeAgent
from simulator.node.pool_plugins import PoolPlugins
from simulator.scheduler.extender_client import ExtenderClient
from simulator.scheduler.fake import FakeScheduler
from tests.component.agent.kernelcache.cache_node import an_image
from tests.component.reconciler.operator_world import IMAGES
from tests.component.server.request_kinds import kind_of
from tests.component.server.run_state import Json, at
from tests.support.loop_clock import ServerClock
from tests.support.nvidia.operator_kinds import sample
from tests.support.registry_double import RegistryDouble
from tests.support.reviews import a_pod_object, a_pool_object
from tests.support.running_server import Cluster, a_cluster, a_server

pytestmark = pytest.mark.looptime(noop_cycles=10)

QUIET_S: Final = 600.0
HEARTBEAT_S: Final = 60.0
HEARTBEATS: Final = 51 * (QUIET_S / HEARTBEAT_S + 1)
"""As the agent's own."""
STABLE_S: Final = 60.0
WITHIN_S: Final = 120.0
"""Of virtual time."""
NODES: Final = tuple(f"n{number}" for number in range(50))
BROKEN: Final = "n5"
SYSTEM: Final = MachineSystem(
    os="ubuntu 24.04", kernel="6.8.0-60-generic", runtime="containerd://2.1.4"
)
WITH_CACHES: Final = ("n0", "n1")
PARTS: Final = "1g.10gb"
POOLS: Final[dict[str, Json]] = {
    "whole": {
        "access": {"groups": ["system:masters"]},
        "podBaseline": "Deny",
        "repair": "Idle",
        "scheduling": {"taints": [{"key": "whole", "effect": "NoSchedule"}]},
        "deviceSelector": {"include": {"products": ["NVIDIA-H200"]}},
    },
    "slices": {
        "allocation": {"mode": "TimeSlice", "slicesPerDevice": 4},
        "deviceSelector": {"include": {"products": ["NVIDIA-L40S"]}},
    },
    "parts": {
        "allocation": {"mode": "MIG", "mig": [{"profile": PARTS, "count": 7}]},
        "deviceSelector": {"include": {"products": ["NVIDIA-H100"]}},
    },
    "elastic": {
        "nodeSelector": {"matchLabels": {"purpose": "elastic"}},
        "autoscaling": {"shapes": [{"name": "small", "devices": 1}], "maxUnits": 4},
    },
}
USED: Final = {
    "whole": "whole",
    "slices": "slices",
    "parts": f"parts.{PARTS}",
    "elastic": "elastic",
}
"""Pool -> resource of a pod in it."""
UNITS: Final = {"whole": 80, "slices": 40, "parts": 70}


def devices_of(node: str) -> list[FakeDevice]:
    """Return two devices."""
    number = int(node.removeprefix("n"))
    if number >= 45:
        return [a_device(L40S, node, index) for index in range(2)]
    if number >= 40:
        return [a_device(H100, node, index, mig=(PARTS, 7)) for index in range(2)]
    return [a_device(H200, node, index) for index in range(2)]


def a_node_pool() -> Json:
    """Return what `render nodepool` prints of the pool that scales."""
    requirements = [
        {"key": SCALE_REQUEST_LABEL, "operator": "Exists"},
        {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": ["gpu-1x"]},
    ]
    template = {
        "metadata": {"labels": {"purpose": "elastic", PRESENT_LABEL: "true"}},
        "spec": {
            "requirements": requirements,
            "startupTaints": [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}],
            "expireAfter": "Never",
        },
    }
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1h"}
    return {
        "apiVersion": NODE_POOLS.api_version,
        "kind": NODE_POOLS.kind,
        "metadata": {"name": "elastic"},
        "spec": {"template": template, "disruption": disruption},
    }


async def keep_reporting(agents: Iterable[FakeNodeAgent]) -> NoReturn:
    while True:
        for agent in agents:
            await agent.report()
        await asyncio.sleep(HEARTBEAT_S)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A cluster with everything installed and on, and the agents of its nodes."""

    cluster: Cluster
    agents: dict[str, FakeNodeAgent]

    async def has(self, resource: Resource, name: str, *path: str, expected: object) -> bool:
        """Say whether the field of an object's status is so."""
        namespace = "default" if resource in {PODS, GKM_CACHES} else None
        found = await self.cluster.client.get(resource, Json, name, namespace=namespace)
        return bool(at(found, "status", *path) == expected)

    async def until(self, *arguments: Any, expected: object) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not await self.has(*arguments, expected=expected):  # noqa: ASYNC110  # seen by reading
                await asyncio.sleep(1)


@asynccontextmanager
async def a_fleet(folder: Path) -> AsyncIterator[Fleet]:
    """Yield the fleet: server, Karpenter, kube-scheduler, DaemonSets, kubelets, agents and two nodes with caches."""
    clock = ServerClock()
    async with a_cluster(folder) as cluster, RegistryDouble() as registry:
        await cluster.install()
        await cluster.install_discovery()
        await cluster.install_karpenter()
        await cluster.install_scheduler()
        await cluster.install_service()
        client, own = cluster.client, [registry.host]
        for crd in (*build_cache_crds(), *build_operator_crds()):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        labels, system = SYSTEM.labels(), SYSTEM.node_info()
        for name in NODES:
            await register_node(client, name, {}, labels=labels, system=system)
        bought = NodeBehaviour(labels=labels, node_info=system, product="NVIDIA L4")
        running = a_server(
            cluster,
            clock=clock,
            leadership={},
            listen={"advertised_address": "127.0.0.1"},
            tls={"ip_addresses": ["127.0.0.1"]},
            node_software={"enabled": True, "images": IMAGES},
            kernel_caches={
                "registries": {"plain_http": own, "private": own},
                "verification": {"allow_unsigned": True},
            },
        )
        async with running as server, asyncio.TaskGroup() as group:
            await server.until_ready()
            bundle = await cluster.bundle()
            url = f"{server.url}{constants.EXTENDER_PREFIX}"
            tls = client_context(bundle.trust_pem, bundle.client)
            async with ExtenderClient(url, tls) as extender:
                agents = {
                    name: FakeNodeAgent(client, clock, node=name, devices=devices_of(name))
                    for name in NODES
                }
                work: list[Coroutine[Any, Any, object]] = [
                    keep_reporting(agents.values()),
                    FakeKubelet(client, clock).run(),
                    FakeDaemonSets(client, clock, namespace=constants.DEFAULT_NAMESPACE).run(),
                    PoolPlugins(client, clock, namespace=constants.DEFAULT_NAMESPACE).run(),
                    FakeScheduler(client, extender, clock).run(),
                    FakeKarpenter(client, clock).run(),
                    JoiningNodes(client, clock, {"elastic": bought}).run(),
                ]
                for name in WITH_CACHES:
                    root = folder / name
                    settings = cache_settings(
                        name, root / "gkm", kubelet=root, registry=registry.host, grace_s=300
                    )
                    caches = NodeCaches(client, clock, settings, devices=devices_of(name))
                    work += caches.tasks().values()
                tasks = [group.create_task(item) for item in work]
                image = f"{registry.host}/team/cache@{an_image(registry)}"
                await client.create(GKM_CACHES, a_cache(image))
                await client.create(CLUSTER_POLICIES, sample("ClusterPolicy"))
                await client.create(NODE_POOLS, a_node_pool())
                yield Fleet(cluster=cluster, agents=agents)
                for task in tasks:
                    task.cancel()


def a_cache(image: str) -> Json:
    return {
        "apiVersion": GKM_CACHES.api_version,
        "kind": GKM_CACHES.kind,
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"image": image},
    }


async def test_ten_quiet_minutes_of_fifty_nodes_have_no_write_but_leases_and_heartbeats(
    tmp_path: Path,
) -> None:
    async with a_fleet(tmp_path) as fleet:
        client = fleet.cluster.client
        for name, spec in POOLS.items():
            body = {"assignment": {"requireAnnotation": False}, **spec}
            await client.create(GPU_POOLS, a_pool_object(name, **body))
        for pool, units in UNITS.items():
            await fleet.until(GPU_POOLS, pool, "capacity", "available", expected=units)
        # Its node has to be rebooted; a device of a node with nothing else to do for repair.
        broken = devices_of(BROKEN)[0]
        await fleet.agents[BROKEN].report_fault(broken.uuid, "Xid 79")
        name = device_name(NodeName(BROKEN), broken.address)
        await fleet.until(GPU_DEVICES, name, "lastXid", "code", expected=79)
        await fleet.until(GPU_POOLS, "whole", "capacity", "unhealthy", expected=2)
        for pool, resource in USED.items():
            pod = a_pod_object(1, resource, pool)
            pod["metadata"] = {"name": pool, "namespace": "default"}
            await client.create(PODS, pod)
        for pool in USED:
            await fleet.until(PODS, pool, "phase", expected="Running")
        await fleet.until(GPU_POOLS, "elastic", "capacity", "used", expected=1)
        policy = sample("ClusterPolicy")["metadata"]["name"]
        await fleet.until(CLUSTER_POLICIES, policy, "state", expected="ready")
        await fleet.until(GKM_CACHES, "llama", "counts", "nodeCnt", expected=len(WITH_CACHES))
        await asyncio.sleep(STABLE_S)
        fleet.cluster.api.requests.clear()

        await asyncio.sleep(QUIET_S)

        written = Counter(kind_of(write) for write in fleet.cluster.api.requests.writes())
        assert (await client.get(NODE_KIND, Json, BROKEN))["spec"]["unschedulable"]
        assert set(written) == {"PUT leases", "PATCH nodefeatures by agent"}
        assert written["PATCH nodefeatures by agent"] <= HEARTBEATS

"""The inventory on the real API server: what nodes of many kinds say, and whose devices a Node owns."""

import asyncio
import datetime as dt
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from api.clock import Instant
from api.names import NodeName
from http_edge.system_clock import SystemClock
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.errors import NotFound, TooManyRequests
from kube.resources import NODE_FEATURES, NODES
from manifests.install.crds import build_crds
from manifests.yaml import render
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.nfd import NAMESPACE, node_feature_crd
from telemetry.metrics import REGISTRY
from tests.cluster.environment import definitions, polling
from tests.cluster.system.installation import until_gone
from tests.component.reconciler.inventory_run import InventoryRun, condition
from tests.support.described_nodes import DescribedNode, described_nodes, wrong_facts
from tests.support.node_features import gpu_feature

FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"


def writes() -> float:
    """How many requests of this process wrote something."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "gpu_api_request_duration_seconds_count"
        and sample.labels["method"] in {"POST", "PATCH", "DELETE"}
    )


@dataclass
class ShiftedTime:
    """The machine's time, and how far the inventory's is ahead of it."""

    clock: SystemClock
    ahead_s: float = 0.0

    def now(self) -> Instant:
        present = self.clock.instant()
        ahead = dt.timedelta(seconds=self.ahead_s)
        return Instant(present.monotonic + self.ahead_s, present.utc + ahead)


@dataclass
class Site:
    """A node of the real cluster, and the inventory that looks at it."""

    world: InventoryRun
    node: str
    time: ShiftedTime

    async def until_stable(self) -> float:
        """Observe and reconcile until nothing is written; return how many writes there were."""
        began = writes()
        before = -1.0
        while before != writes():
            before = writes()
            await self.world.observe()
            await self.world.controller.reconcile(self.node)  # type: ignore[arg-type]
        return writes() - began


@pytest.fixture(scope="module", name="_kinds")
def _install_kinds(kubectl):
    """Our kinds and NFD's; they stay until the control plane goes (tests/cluster/manifests/conftest.py)."""
    crds = [*build_crds(), node_feature_crd()]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    asyncio.run(kubectl("apply", "-f", "-", stdin=render([*crds, namespace])))
    asyncio.run(definitions.until_served(kubectl, crds))


@pytest.fixture
async def site(control_plane, api, _kinds) -> AsyncIterator[Site]:
    node = f"inventory-{secrets.token_hex(3)}"
    clock = SystemClock()
    await api.create("/api/v1/nodes", {"metadata": {"name": node}})
    configuration = await load_configuration(clock, kubeconfig=str(control_plane.kubeconfig()))
    async with KubeClient(configuration, clock) as client:
        # It counts nothing: the requests go to the real one.
        world = InventoryRun(InMemoryApiServer(clock), client)
        time = ShiftedTime(clock)
        world.time = time  # type: ignore[assignment]
        world.restart()

        async def is_served() -> bool:
            # The API server answers so while it sets up the storage of a new kind.
            with suppress(TooManyRequests):
                await world.observe()
                return True
            return False

        await polling.eventually(is_served, what="the new kinds are served")
        yield Site(world, node, time)
        world.controller.forget_all()
        with suppress(NotFound):
            await client.delete(NODES, node)
    await api.delete(FEATURES)


def ours(found: dict[str, Any], node: str) -> list[Any]:
    return [device for name, device in sorted(found.items()) if name.startswith(node)]


async def test_garbage_collector_leaves_the_devices_of_a_node_that_is_made_again(site: Site, api):
    """It takes what the Node owned that is gone: when it took that, it has looked."""
    await site.world.publish(gpu_feature(site.node, 2))
    await site.until_stable()
    before = ours(await site.world.gpus(), site.node)
    path = f"/api/v1/nodes/{site.node}"
    uid = (await api.get(path))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": site.node, "uid": uid}
    maps = "/api/v1/namespaces/default/configmaps"
    await api.create(maps, {"metadata": {"name": site.node, "ownerReferences": [owner]}})
    await api.delete(path)
    await api.create("/api/v1/nodes", {"metadata": {"name": site.node}})
    await until_gone(api, f"{maps}/{site.node}")
    assert await site.until_stable() == 0
    after = ours(await site.world.gpus(), site.node)
    assert [item.metadata.uid for item in after] == [item.metadata.uid for item in before]


async def test_each_described_node_is_right_and_costs_no_further_write(site: Site):
    """With the definitions of NFD, as nodes of one cluster."""
    world, nodes = site.world, described_nodes()
    for node in nodes:
        await world.add_node(node.name, node.labels())
        for feature in node.features(node.labels()):
            await world.client.create(NODE_FEATURES, feature)
    await reconcile_all(world, nodes)
    reasons = {
        condition(await world.inventory(node.name), "InventoryIncomplete")[:2] for node in nodes
    }
    assert reasons == {("True", "SourceMissing")}
    for node in nodes:
        await world.client.create(NODE_FEATURES, node.by_driver(heartbeat=world.now()))
    await reconcile_all(world, nodes)
    before = writes()
    await reconcile_all(world, nodes)
    assert writes() == before
    for node in nodes:
        devices = [device.status for device in world.devices.store.on_node(NodeName(node.name))]
        assert [*wrong_facts(node, devices)] == []
        assert len(devices) == len(node.devices)
        inventory = await world.inventory(node.name)
        assert condition(inventory, "InventoryIncomplete")[:2] == ("False", "Complete"), node.name

    for node in nodes:
        await world.client.delete(NODES, node.name)
    await reconcile_all(world, nodes)
    site.time.ahead_s += DEFAULT_GONE_FOR.total_seconds()
    await reconcile_all(world, nodes)
    found = await world.gpus()
    assert not [device for node in nodes for device in ours(found, node.name)]


async def reconcile_all(world: InventoryRun, nodes: list[DescribedNode]) -> None:
    """Observe once, and reconcile each node twice: what it wrote first is not observed yet."""
    for _ in range(2):
        await world.observe()
        for node in nodes:
            await world.controller.reconcile(NodeName(node.name))
    await world.observe()

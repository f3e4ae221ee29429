"""The inventory on the real API server: made once, left alone, and gone with its node."""

import asyncio
import datetime as dt
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from api.clock import Instant
from api.kinds.gpudevice import PoolRef
from api.names import PRESENT_LABEL, NodeName
from http_edge.system_clock import SystemClock
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.errors import NotFound, TooManyRequests
from kube.resources import NODES
from manifests.install.crds import build_crds
from manifests.yaml import render
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.nfd import NAMESPACE, node_feature_crd
from telemetry.metrics import REGISTRY
from tests.cluster.environment import definitions, polling
from tests.cluster.system.installation import until_gone
from tests.component.reconciler.inventory_run import InventoryRun, condition
from tests.support.node_features import (
    agent_device,
    agent_feature,
    gfd_labels,
    gpu_feature,
    rule_labels,
    uuid_of,
)

DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"
INVENTORIES = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories"
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


async def value_of(site: Site) -> str | None:
    """Reconcile the label twice, and return its value."""
    for _ in range(2):
        await site.world.observe()
        await site.world.present_label.reconcile(NodeName(site.node))
    node = await site.world.client.get(NODES, dict[str, Any], site.node)
    found: str | None = node["metadata"].get("labels", {}).get(PRESENT_LABEL)
    return found


async def test_a_node_with_a_device_is_labelled_once_and_loses_the_label_with_the_device(
    site: Site,
):
    nfd = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
    await site.world.label_all(dict(nfd), site.node)
    assert await value_of(site) == "true"
    before = writes()
    site.world.restart()
    assert await value_of(site) == "true"
    assert writes() == before
    await site.world.label_all(dict.fromkeys(nfd), site.node)
    assert await value_of(site) == "true"
    site.time.ahead_s += DEFAULT_GONE_FOR.total_seconds()
    assert await value_of(site) is None


async def test_a_label_set_by_hand_stays(site: Site):
    await site.world.label_all({"nvidia.com/gpu.present": "true"}, site.node)
    assert await value_of(site) == "true"
    await site.world.label_all({PRESENT_LABEL: "false"}, site.node)
    assert await value_of(site) == "false"
    await site.world.label_all({"nvidia.com/gpu.present": None}, site.node)
    site.time.ahead_s += DEFAULT_GONE_FOR.total_seconds()
    assert await value_of(site) == "false"


async def test_a_label_set_meanwhile_is_a_conflict_and_a_deleted_node_is_not_made_again(
    site: Site,
):
    await site.world.label_all({"nvidia.com/gpu.present": "true"}, site.node)
    await site.world.observe()
    await site.world.label_all({PRESENT_LABEL: "false"}, site.node)
    assert await site.world.present_label.reconcile(NodeName(site.node)) is not None
    assert await value_of(site) == "false"
    await site.world.label_all({PRESENT_LABEL: None}, site.node)
    await site.world.observe()
    await site.world.client.delete(NODES, site.node)
    assert await site.world.present_label.reconcile(NodeName(site.node)) is not None
    with pytest.raises(NotFound):
        await site.world.client.get(NODES, dict[str, Any], site.node)


def ours(found: dict[str, Any], node: str) -> list[Any]:
    return [device for name, device in sorted(found.items()) if name.startswith(node)]


async def test_devices_are_made_once_and_a_settled_node_costs_no_write(site: Site):
    await site.world.label_all({**rule_labels(2), **gfd_labels(2)}, site.node)
    devices = [agent_device(site.node, number, of=2) for number in range(2)]
    await site.world.publish(agent_feature(site.node, devices, heartbeat=site.world.now()))
    assert await site.until_stable() == 6
    assert await site.until_stable() == 0
    site.world.restart()
    assert await site.until_stable() == 0
    first, second = ours(await site.world.gpus(), site.node)
    assert first.status.uuid == uuid_of(site.node, 0)
    assert first.status.product == "NVIDIA-H200"
    assert [link.peer for link in first.status.links] == [second.status.inventory_id]
    assert condition(first, "Stale")[:2] == ("False", "Fresh")
    inventory = await site.world.inventory(site.node)
    assert inventory.status.devices == [first.name, second.name]


async def test_what_a_source_says_no_more_stays_and_fields_of_others_are_left_alone(
    site: Site, api
):
    feature = gpu_feature(site.node, 1)
    await site.world.publish(feature)
    await site.until_stable()
    (device,) = ours(await site.world.gpus(), site.node)
    status = {"poolRef": {"name": "a"}, "state": "Assigned"}
    await api.patch(
        f"{DEVICES}/{device.name}/status",
        {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUDevice",
            "metadata": {"name": device.name},
            "status": status,
        },
        kind="apply",
        fieldManager="another",
    )
    await site.world.withdraw(feature)
    await site.until_stable()
    stale = await site.world.gpu(device.name)
    assert condition(stale, "Stale")[:2] == ("True", "SourceSilent")
    assert (stale.status.uuid, stale.status.product) == (device.status.uuid, device.status.product)
    assert stale.status.pool_ref == PoolRef(name="a")


async def test_node_that_is_gone_takes_its_devices_with_it_after_a_grace(site: Site, api):
    await site.world.publish(gpu_feature(site.node, 2))
    await site.until_stable()
    await api.delete(f"/api/v1/nodes/{site.node}")
    assert await site.until_stable() == 0
    assert len(ours(await site.world.gpus(), site.node)) == 2
    site.time.ahead_s += DEFAULT_GONE_FOR.total_seconds()
    assert await site.until_stable() == 3
    assert ours(await site.world.gpus(), site.node) == []
    await site.world.observe()
    assert site.node not in site.world.inventories.by_name


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

"""One process that serves all pools of its node, as the API server has them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.api_cache import NodeObjects
from agent.plugin.config_sources import ClusterSource
from agent.plugin.servers import PluginServers
from api.nodefiles.poolconfig import DeviceInjection
from http_edge.system_clock import SystemClock
from kube.resources import GPU_DEVICES, GPU_POOLS
from manifests.install.crds import build_crds
from telemetry.metrics import REGISTRY
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.support.kubelet.plugins import PluginsOfKubelet
from tests.support.next_version import allow_next_version, body_of
from tests.support.polling import until

WHOLE, SLICES = "gpu.deckhouse.io/whole", "gpu.deckhouse.io/slices"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with a_cluster() as opened:
        yield opened


@asynccontextmanager
async def an_agent(cluster: Cluster, kubelet: PluginsOfKubelet) -> AsyncIterator[PluginServers]:
    clock = SystemClock()
    served = PluginServers(kubelet.directory, clock, hand_out=DeviceInjection.CDI)
    objects = NodeObjects(cluster.client, clock, node="n1")
    work = [ClusterSource(objects, served).run(), served.run()]
    work += [informer.run() for informer in objects.informers]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item) for item in work]
        yield served
        for task in tasks:
            task.cancel()


def ids(kubelet: PluginsOfKubelet, resource: str) -> list[str]:
    return [device.ID for device in kubelet.devices.get(resource, ())]


async def test_every_pool_of_the_node_is_served_and_followed(
    cluster: Cluster, kubelet: PluginsOfKubelet
):
    await cluster.add_node("n2")
    await cluster.add_device("n2-0")
    async with an_agent(cluster, kubelet) as served:
        await until(lambda: ids(kubelet, WHOLE) == ["GPU-n1-0", "GPU-n1-1"])
        await until(lambda: not served.missing)
        await cluster.add_pool("slices", allocation={"mode": "TimeSlice", "slicesPerDevice": 2})
        await cluster.report("n1-1", poolRef={"name": "slices"})
        await until(lambda: ids(kubelet, WHOLE) == ["GPU-n1-0"])
        await until(lambda: ids(kubelet, SLICES) == ["GPU-n1-1::0", "GPU-n1-1::1"])
        assert [registration.resource_name for registration in kubelet.registrations] == [
            WHOLE,
            SLICES,
        ]


async def test_a_pool_that_is_gone_has_no_units_left(cluster: Cluster, kubelet: PluginsOfKubelet):
    async with an_agent(cluster, kubelet):
        await until(lambda: kubelet.capacity(WHOLE) == 2)
        await cluster.client.delete(GPU_DEVICES, "n1-0")
        await until(lambda: kubelet.capacity(WHOLE) == 1)
        await cluster.client.delete(GPU_POOLS, "whole")
        await until(lambda: kubelet.devices.get(WHOLE) == ())


async def test_a_device_that_is_still_partitioned_is_not_offered_as_a_whole(
    cluster: Cluster, kubelet: PluginsOfKubelet
):
    await cluster.report("n1-0", mig={"capable": True, "mode": "Enabled"})
    async with an_agent(cluster, kubelet):
        await until(lambda: ids(kubelet, WHOLE) == ["GPU-n1-1"])
        await cluster.report("n1-0", mig={"capable": True, "mode": "Disabled"})
        await until(lambda: ids(kubelet, WHOLE) == ["GPU-n1-0", "GPU-n1-1"])


async def test_a_faulted_device_is_not_given_out(cluster: Cluster, kubelet: PluginsOfKubelet):
    async with an_agent(cluster, kubelet):
        await until(lambda: kubelet.allocatable(WHOLE) == 2)
        condition = {
            "type": "Healthy",
            "status": "False",
            "reason": "GPUReset",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await cluster.report("n1-0", conditions=[condition])
        await until(lambda: kubelet.allocatable(WHOLE) == 1 and kubelet.capacity(WHOLE) == 2)


async def test_an_older_agent_that_restarts_offers_the_units_of_objects_of_the_next_version(
    cluster: Cluster, kubelet: PluginsOfKubelet
):
    for kind, resource, path, name, place in (
        ("GPUPool", GPU_POOLS, ("spec", "scheduling", "strategy"), "whole", None),
        ("GPUDevice", GPU_DEVICES, ("status", "state"), "n1-0", "status"),
    ):
        await allow_next_version(cluster.client, build_crds(), kind, *path)
        await cluster.client.merge_patch(resource, body_of(path), name=name, subresource=place)
    async with an_agent(cluster, kubelet):
        await until(lambda: ids(kubelet, WHOLE) == ["GPU-n1-0", "GPU-n1-1"])


async def test_an_agent_that_restarts_offers_no_unit_of_a_mode_that_it_does_not_know_and_counts_the_pool(
    cluster: Cluster, kubelet: PluginsOfKubelet
):
    """Which units a device has is unknown then; one that goes on has read the pool before."""

    def unreadable() -> float | None:
        labels = {"resource": "gpupools"}
        return REGISTRY.get_sample_value("gpu_informer_unreadable_objects", labels)

    path = ("spec", "allocation", "mode")
    await allow_next_version(cluster.client, build_crds(), "GPUPool", *path)
    async with an_agent(cluster, kubelet):
        await until(lambda: kubelet.allocatable(WHOLE) == 2)
        await cluster.client.merge_patch(GPU_POOLS, body_of(path), name="whole")
        await until(lambda: unreadable() == 1)
        assert kubelet.allocatable(WHOLE) == 2
    async with an_agent(cluster, kubelet):
        await until(lambda: kubelet.allocatable(WHOLE) == 0 and unreadable() == 1)

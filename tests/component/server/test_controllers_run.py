"""With default settings everything that has to run does, and says what it sees in the cluster."""

import pytest

from api.foreign.core import Node
from api.kinds.gpudevice import DeviceState, GPUDevice
from api.kinds.gpupool import GPUPool
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES
from simulator.node.kubelet import register_node
from tests.support.polling import until_async
from tests.support.reviews import a_device_object, a_pool_object
from tests.support.running_server import Cluster, a_server

pytestmark = pytest.mark.looptime

DEVICE = "n1-0000-17-00.0"


async def populate(cluster: Cluster) -> None:
    pool = a_pool_object("whole", allocation={"mode": "Exclusive"})
    await cluster.client.create(GPU_POOLS, {**pool, "metadata": {"name": "whole"}})
    await register_node(cluster.client, "n1", {"gpu.deckhouse.io/whole": 1})
    device = a_device_object("whole", name=DEVICE, status={"poolRef": {"name": "whole"}})
    await cluster.client.create(GPU_DEVICES, device)
    await cluster.client.merge_patch(
        GPU_DEVICES, {"status": device["status"]}, name=DEVICE, subresource="status"
    )


async def test_fresh_device_pool_and_node_get_all_that_we_write(cluster: Cluster) -> None:
    """Lesson 1: a switch that was off by accident kept every reconciler from running."""

    async def is_device_assigned() -> bool:
        device = await cluster.client.get(GPU_DEVICES, GPUDevice, DEVICE)
        return device.status.state is DeviceState.ASSIGNED and device.status.units.capacity == 1

    async def is_pool_counted() -> bool:
        pool = await cluster.client.get(GPU_POOLS, GPUPool, "whole")
        return pool.status.capacity.total == 1 and pool.status.capacity.available == 1

    async def is_node_labelled() -> bool:
        node = await cluster.client.get(NODES, Node, "n1")
        return any("pool" in label for label in node.metadata.labels or {})

    async with a_server(cluster) as server:
        await server.until_ready()
        await populate(cluster)
        await until_async(is_device_assigned)
        await until_async(is_pool_counted)
        await until_async(is_node_labelled)
        assert 'gpupool_capacity_total{pool="whole"} 1.0' in await server.metric("gpupool_capacity")


async def test_cluster_that_does_not_change_is_not_written_to(cluster: Cluster) -> None:
    """Lesson 11: objects were written in every round."""
    async with a_server(cluster) as server:
        await server.until_ready()
        await populate(cluster)
        await cluster.until_stable()
        cluster.api.requests.clear()
        await until_async(lambda: renewals_seen(cluster, 4))
        others = [
            write.path for write in cluster.api.requests.writes() if "/leases/" not in write.path
        ]
        assert others == []


async def renewals_seen(cluster: Cluster, count: int) -> bool:
    return len(cluster.api.requests.writes(path="/leases/")) >= count

"""A standby has no gauges of pools: sums over replicas would be wrong."""

import pytest

from api.names import IGNORE_LABEL
from kube.resources import GPU_DEVICES, GPU_POOLS
from simulator.node.kubelet import register_node
from telemetry.metrics import REGISTRY
from tests.support.hand_made import a_device, a_pool
from tests.support.polling import until
from tests.support.running_server import Cluster, a_server

pytestmark = pytest.mark.looptime


def exported() -> dict[tuple[str, str], float]:
    """Return every gauge that is about a pool; counters of tests before this one stay in the process."""
    return {
        (sample.name, sample.labels["pool"]): sample.value
        for family in REGISTRY.collect()
        if family.type == "gauge"
        for sample in family.samples
        if "pool" in sample.labels
    }


def unassigned() -> float | None:
    return REGISTRY.get_sample_value("gpu_device_unassigned_total")


async def add_devices(cluster: Cluster) -> None:
    """One device in the pool, and one in none."""
    await register_node(cluster.client, "n1", {})
    for gpu in range(2):
        device = a_device("n1", gpu, "whole")
        del device["metadata"]["annotations"]
        if gpu:
            del device["status"]["poolRef"]
            device["metadata"]["labels"] = {IGNORE_LABEL: "true"}
        await cluster.client.create(GPU_DEVICES, device)
        await cluster.client.merge_patch(
            GPU_DEVICES,
            {"status": device["status"]},
            name=device["metadata"]["name"],
            subresource="status",
        )


async def test_pools_are_shown_by_the_replica_that_leads_and_by_no_other(cluster: Cluster):
    total = ("gpupool_capacity_total", "whole")
    async with a_server(cluster) as server:
        await server.until_ready()
        await add_devices(cluster)
        pool = a_pool()
        pool["spec"]["assignment"] = {"requireAnnotation": False}
        await cluster.client.create(GPU_POOLS, pool)
        await until(lambda: exported().get(total) == 1 and unassigned() == 1)

        await cluster.give_lease_to("another-replica", duration_s=60)
        await until(lambda: exported() == {} and unassigned() == 0)

        await cluster.give_lease_to("")
        await until(lambda: exported().get(total) == 1 and unassigned() == 1)

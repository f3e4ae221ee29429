"""kubelet gives a pod another device than it was bound with: the whole server follows what the node says."""

import contextlib
import functools
from typing import Any

import msgspec

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import ContainerDevices, GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.names import API_VERSION, DEVICES_ANNOTATION
from kube.errors import AlreadyExists
from kube.resources import EVENTS, GPU_DEVICES, GPU_NODE_INVENTORIES, GPU_POOLS
from simulator.node.kubelet import register_node
from tests.component.server.metrics_run import MetricsRun, comes_to
from tests.support.metric_samples import Counted, exported
from tests.support.polling import until_async
from tests.support.running_server import Cluster, a_server

WHOLE = "gpu.deckhouse.io/whole"
MANAGER = "gpu-control-plane/agent-allocations"
FAULTED = {"type": "Healthy", "status": "False", "reason": "Xid", "message": ""}
STAMP = {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 0}


async def reports(cluster: Cluster, **units: list[str]) -> None:
    """The node's agent says which units these pods have."""
    entries = [
        ContainerDevices(
            namespace="default",
            pod=name,
            container="main",
            resource=WHOLE,
            units=item,
            uid=(await cluster.stored_pod(name)).metadata.uid,
        )
        for name, item in units.items()
    ]
    body = {"apiVersion": API_VERSION, "kind": "GPUNodeInventory", "metadata": {"name": "n1"}}
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(GPU_NODE_INVENTORIES, body)
    await cluster.client.apply(
        GPU_NODE_INVENTORIES,
        {**body, "status": {"allocations": entries}},
        field_manager=MANAGER,
        subresource="status",
    )


async def fails(cluster: Cluster, name: str) -> None:
    """The device is faulted: nothing of it is given out by us, and kubelet does not know yet."""
    await cluster.client.merge_patch(
        GPU_DEVICES,
        {"status": {"conditions": [FAULTED | STAMP]}},
        name=name,
        subresource="status",
    )


async def mismatches(cluster: Cluster) -> list[str]:
    events = (await cluster.client.list_(EVENTS, dict[str, Any])).items
    return [event["note"] for event in events if event["reason"] == "GPUAllocationMismatch"]


def capacity() -> dict[str, float]:
    names = ("total", "used", "available", "unhealthy")
    return {name: exported(f"gpupool_capacity_{name}").get(("whole",), -1) for name in names}


async def given(cluster: Cluster, name: str) -> Any:
    pod = await cluster.stored_pod(name)
    return msgspec.json.decode(pod.metadata.annotation(DEVICES_ANNOTATION) or "null")


async def allocated(cluster: Cluster) -> list[int]:
    devices = [await cluster.client.get(GPU_DEVICES, GPUDevice, f"n1-{n}") for n in range(2)]
    return [device.status.units.allocated for device in devices]


async def test_the_server_follows_the_node_and_a_waiting_pod_gets_what_is_free(
    cluster: Cluster,
) -> None:
    mismatched = functools.partial(Counted().growth, "gpu_allocation_mismatches_total")
    async with a_server(cluster) as server:
        await server.until_ready()
        await until_async(cluster.trusts_webhooks)
        run = MetricsRun(cluster, server)
        await run.add_pool("whole", "60s")
        await register_node(cluster.client, "n1", {WHOLE: 2})
        for number in range(2):
            await run.add_device(number, "whole")
        await fails(cluster, "n1-1")
        await comes_to(capacity, {"total": 2, "used": 0, "available": 1, "unhealthy": 1})
        first = await run.admit("first")
        await run.filter("first")
        await run.bind("first", first)
        assert await given(cluster, "first") == {"main": ["GPU-0"]}
        await comes_to(capacity, {"total": 2, "used": 1, "available": 0, "unhealthy": 1})
        waiting = await run.admit("waiting")
        await run.filter("waiting", outcome="none_fit")

        await reports(cluster, first=["GPU-1"])
        await comes_to(capacity, {"total": 2, "used": 1, "available": 1, "unhealthy": 0})
        await until_async(lambda: says(cluster, [0, 1]))
        await comes_to(mismatched, {("whole",): 1})
        await until_async(lambda: has_one_note(cluster))
        (note,) = await mismatches(cluster)
        assert "allocated GPU-1 instead of GPU-0" in note
        await run.filter("waiting")
        await run.bind("waiting", waiting)
        assert await given(cluster, "waiting") == {"main": ["GPU-0"]}

        await reports(cluster, first=["GPU-1"], waiting=["GPU-0"])
        await until_async(lambda: says(cluster, [1, 1]))
        await until_async(lambda: is_reported_in_use(cluster, 2))
        assert mismatched() == {("whole",): 1}
        assert exported("gpu_units_held_twice") == {(): 0}
        assert len(await mismatches(cluster)) == 1

    async with a_server(cluster) as server:
        await server.until_ready()
        await until_async(cluster.trusts_webhooks)
        await comes_to(capacity, {"total": 2, "used": 2, "available": 0, "unhealthy": 0})
        assert exported("gpu_units_held_twice") == {(): 0}
        inventory = await cluster.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, "n1")
        assert len(inventory.status.allocations or ()) == 2
        assert len(await mismatches(cluster)) == 1


async def says(cluster: Cluster, expected: list[int]) -> bool:
    return await allocated(cluster) == expected


async def is_reported_in_use(cluster: Cluster, units: int) -> bool:
    pool = await cluster.client.get(GPU_POOLS, GPUPool, "whole")
    return pool.status.capacity.used == units


async def has_one_note(cluster: Cluster) -> bool:
    return len(await mismatches(cluster)) == 1

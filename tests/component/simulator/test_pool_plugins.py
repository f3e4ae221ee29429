"""What nodes offer follows the lists of the pools, as it does where device plugins and kubelets run."""

import asyncio
import base64
import contextlib
import gzip
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import CONFIG_MAPS, NAMESPACES, NODES
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.kubelet import register_node
from simulator.node.pool_plugins import PoolPlugins
from simulator.scheduler.fake import ScheduledNode
from tests.support.loop_clock import LoopClock
from tests.support.polling import until_async

NAMESPACE = "gpu-control-plane"
RESOURCE = "gpu.deckhouse.io/small"

pytestmark = pytest.mark.looptime


@pytest.fixture
async def client(server: InMemoryApiServer) -> AsyncIterator[KubeClient]:
    """A client of a server with two nodes, whose device plugins run."""
    async with KubeClient(StaticConnection(server.url), LoopClock()) as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for node in ("n1", "n2"):
            await register_node(client, node, {})
        plugins = PoolPlugins(client, LoopClock(), namespace=NAMESPACE)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(plugins.run())
            yield client
            running.cancel()


def a_list(*, slices: int = 1, **devices: list[dict[str, Any]]) -> dict[str, Any]:
    """The ConfigMap of a pool with these devices by node."""
    config = {"version": "v1", "pool": "small", "resource": RESOURCE, "slices": slices}
    content = msgspec.json.encode(config | {"nodes": devices})
    labels = {"gpu.deckhouse.io/pool": "small"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "list-small", "namespace": NAMESPACE, "labels": labels},
        "data": {"config.json": content.decode()},
    }


async def write(client: KubeClient, config_map: dict[str, Any]) -> None:
    await client.apply(CONFIG_MAPS, config_map, field_manager="test")


async def offered(client: KubeClient, node: str) -> tuple[str | None, str | None]:
    """Capacity and what of it is allocatable."""
    status = (await client.get(NODES, dict[str, Any], node))["status"]
    return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)


async def offers(client: KubeClient, node: str, capacity: str, allocatable: str) -> None:
    with contextlib.suppress(TimeoutError):

        async def does() -> bool:
            return await offered(client, node) == (capacity, allocatable)

        await until_async(does)
    assert await offered(client, node) == (capacity, allocatable)


async def test_a_node_offers_the_units_of_its_devices(client: KubeClient):
    await write(client, a_list(slices=4, n1=[{"uuid": "GPU-1"}, {"uuid": "GPU-2"}]))
    await offers(client, "n1", "8", "8")
    assert await offered(client, "n2") == (None, None)
    current = await client.get(NODES, ScheduledNode, "n1")
    assert current.allocatable("cpu") == 64, "the rest of its status stays"


async def test_a_withheld_device_is_capacity_and_not_allocatable(client: KubeClient):
    await write(client, a_list(n1=[{"uuid": "GPU-1"}, {"uuid": "GPU-2", "isWithheld": True}]))
    await offers(client, "n1", "2", "1")


async def test_a_change_of_the_list_changes_what_is_offered(client: KubeClient):
    await write(client, a_list(slices=4, n1=[{"uuid": "GPU-1"}]))
    await offers(client, "n1", "4", "4")
    await write(client, a_list(slices=2, n2=[{"uuid": "GPU-3"}]))
    await offers(client, "n2", "2", "2")
    await offers(client, "n1", "0", "0")


async def test_a_pool_that_is_gone_leaves_a_resource_with_nothing_of_it(client: KubeClient):
    await write(client, a_list(n1=[{"uuid": "GPU-1"}]))
    await offers(client, "n1", "1", "1")
    await client.delete(CONFIG_MAPS, "list-small", namespace=NAMESPACE)
    await offers(client, "n1", "0", "0")


async def test_a_packed_list_is_read_and_a_broken_one_changes_nothing(client: KubeClient):
    packed = a_list(n1=[{"uuid": "GPU-1"}])
    content = gzip.compress(packed.pop("data")["config.json"].encode())
    packed["binaryData"] = {"config.json.gz": base64.b64encode(content).decode()}
    await write(client, packed)
    await offers(client, "n1", "1", "1")
    await write(client, a_list() | {"data": {"config.json": "{"}})
    other = a_list(n2=[{"uuid": "GPU-2"}])
    other["metadata"]["name"] = "list-other"
    await write(client, other)
    await offers(client, "n2", "1", "1")
    await offers(client, "n1", "1", "1")


async def test_a_write_that_fails_is_made_again(client: KubeClient, server: InMemoryApiServer):
    server.faults.fail("PATCH", r"/nodes/n1/status", 503, times=1)
    await write(client, a_list(n1=[{"uuid": "GPU-1"}]))
    await offers(client, "n1", "1", "1")

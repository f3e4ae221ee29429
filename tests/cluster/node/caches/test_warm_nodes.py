"""Pods of a pool that mount a cache, placed by the stock kube-scheduler: where it fits, and where it is warm.

The second node has no agent: devices and units are told for it, and the double plays its kubelet.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import nodes, pods, polling
from tests.cluster.node.caches.caches import volume_of
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.conftest import add_device, wait_until_served
from tests.cluster.system.objects import DEVICES, PREFIX, Pool, a_device

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches
    from tests.cluster.node.stories.devices import NodeDevices

HERE, THERE = 4, 8
"""Devices of the real node, and of the other one."""
TAKEN = 2
"""Devices of the other one that pods have from the start: a pool that packs prefers it then."""

MakeNode = Callable[..., Awaitable[Pool]]


@pytest.fixture
async def pools(
    api: "ApiClient", namespace: str, caches: "Caches", devices: "NodeDevices"
) -> AsyncIterator[Pools]:
    made = Pools(api, namespace, caches.node, devices)
    yield made
    await made.clear()


@pytest.fixture
async def second_node(
    api: "ApiClient",
    pools: Pools,
    create_nodes: Callable[..., Awaitable[list[str]]],
) -> AsyncIterator[MakeNode]:
    """`await second_node(capability="9.0")`: a pool on both nodes."""
    made: list[str] = []

    async def make(*, capability: str) -> Pool:
        prefix = f"cold-{secrets.token_hex(3)}"
        (node,) = nodes.node_names(prefix, 1)
        devices = [a_device(node, number, "") for number in range(THERE)]
        resource = await pools.make(
            *range(HERE),
            others=[item["status"]["inventoryID"] for item in devices],
            scheduling={"strategy": "BinPack"},
        )
        name = resource.removeprefix(PREFIX)
        labels = {"kubernetes.io/hostname": node}
        await create_nodes(1, prefix=prefix, gpus=0, resources={resource: THERE}, labels=labels)
        for number in range(THERE):
            device = a_device(node, number, name)
            device["status"]["computeCapability"] = capability
            made.append(f"{DEVICES}/{device['metadata']['name']}")
            await add_device(api, device)
        pool = Pool(name=name, nodes=(pools.node.name, node))
        await wait_until_served(api, pool, total=HERE + THERE)
        return pool

    yield make
    await pools.clear_pods()
    for path in made:
        await api.delete(path)


def a_pod(pools: Pools, pool: Pool, name: str, *caches: str, on: str = "") -> "JsonObject":
    """Return a pod of one device with these caches of the namespace."""
    pod = pools.a_pod(name, pool.resource)
    pod["spec"]["volumes"] = [
        {**volume_of(cache, pools.namespace), "name": cache} for cache in caches
    ]
    # A volume that no container mounts is not mounted at all.
    pod["spec"]["containers"][0]["volumeMounts"] = [
        {"name": cache, "mountPath": f"/caches/{cache}"} for cache in caches
    ]
    if on:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
    return pod


async def node_of(pools: Pools, pod: "JsonObject") -> str:
    """Create the pod, and return where it is bound."""
    await pools.create(pod)
    bound = await pods.wait_for_pod(
        pools.api, pools.namespace, pod["metadata"]["name"], pods.is_bound
    )
    return str(bound["spec"]["nodeName"])


async def test_a_pod_goes_where_its_cache_is_warm(
    caches: "Caches", images: "dict[str, CacheImage]", pools: Pools, second_node: MakeNode
):
    pool = await second_node(capability="9.0")
    here, there = pool.nodes
    await caches.make("llama", images["llama:1"])
    await caches.make("cold", images["mistral:1"], warm="Demand")
    await caches.shows("llama", "Extracted", nodeNotInUseCnt=1)
    for number in range(TAKEN):
        assert await node_of(pools, a_pod(pools, pool, f"taken-{number}", on=there)) == there

    # The pool's strategy alone, and a cache that is warm nowhere, lead to the node that is used already.
    assert await node_of(pools, a_pod(pools, pool, "plain")) == there
    await pools.delete("plain")
    assert await node_of(pools, a_pod(pools, pool, "unwarmed", "cold")) == there
    await pools.delete("unwarmed")
    assert await node_of(pools, a_pod(pools, pool, "warmed", "llama")) == here
    await pools.running("warmed")
    await caches.agrees({"warmed": images["llama:1"].digest})

    async def is_counted() -> "JsonObject":
        status = await caches.api.status(caches.path("llama"))
        current = {item["name"]: item for item in status.get("pools") or ()}
        assert current.get(pool.name) == {
            "name": pool.name,
            "nodes": 2,
            "warm": 1,
            "incompatible": 0,
        }, f"{status}"
        return status

    await polling.eventually(is_counted, what="the status says on how many nodes it is warm")


async def test_a_pod_goes_only_where_its_cache_fits(
    caches: "Caches", images: "dict[str, CacheImage]", pools: Pools, second_node: MakeNode
):
    """The devices of the other node are of architecture 80."""
    pool = await second_node(capability="8.0")
    here, there = pool.nodes
    await caches.make("llama", images["llama:1"])
    await caches.make("alien", images["alien"])
    await caches.shows("llama", "Extracted", nodeNotInUseCnt=1)
    await caches.shows("alien", "Error", nodeErrorCnt=1)

    assert await node_of(pools, a_pod(pools, pool, "alien", "alien")) == there
    for number in range(HERE):
        assert await node_of(pools, a_pod(pools, pool, f"fits-{number}", "llama")) == here
    await pools.create(a_pod(pools, pool, "waits", "llama"))
    waiting = await pods.wait_for_pod(pools.api, pools.namespace, "waits", pods.is_unschedulable)
    said = pods.scheduled_condition(waiting)["message"]
    text = (
        f"GPU pool {pool.name}: kernel cache GKMCache {pools.namespace}/llama fits no device of the"
        " pool on this node: arch 90 of the cache, device has 80"
    )
    assert text in said
    # A place comes free where it fits.
    await pools.delete("fits-0")
    await pods.wait_for_pod(pools.api, pools.namespace, "waits", pods.is_bound)
    assert (await pools.get("waits"))["spec"]["nodeName"] == here

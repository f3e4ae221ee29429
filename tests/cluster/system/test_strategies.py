"""Where pods of a pool go: spread over zones, packed onto one node, or where the fewest units are left."""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import Pool, a_pod, all_bound

ZONE = "example.com/zone"
SPREAD = {"strategy": "Spread", "topologyKey": ZONE}


async def _label(api: client.ApiClient, node: str, zone: str | None) -> None:
    await api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {ZONE: zone}}})


async def _until_pods_get(api: client.ApiClient, namespace: str, pool: Pool, *, when: str) -> None:
    """Wait until admission knows the labels of the pool's nodes."""

    async def has_node_labels() -> bool:
        probe = await api.create(f"{pods.collection(namespace)}?dryRun=All", a_pod("probe", pool))
        (constraint,) = probe["spec"]["topologySpreadConstraints"]
        assert constraint["whenUnsatisfiable"] == when
        return True

    await polling.eventually(has_node_labels, what=f"pods of {pool.name} with {when}")


async def _nodes_of(
    api: client.ApiClient, namespace: str, pool: Pool, *, count: int, units: int = 1
) -> "Counter[str]":
    """Create pods one after the other, each once the one before is bound; return their nodes."""
    found: dict[str, Any] = {}
    for number in range(count):
        await api.create(pods.collection(namespace), a_pod(f"p-{number}", pool, units))
        found = await pods.wait_for_pods(api, namespace, partial(all_bound, count=number + 1))
    return Counter(pod["spec"]["nodeName"] for pod in found.values())


async def test_pods_of_a_pool_that_spreads_are_in_every_zone_alike(make_pool, api, namespace):
    """Lesson 3: the injected constraint selects the pods themselves, so that they really spread."""
    pool = await make_pool(nodes=4, devices=4, scheduling=SPREAD)
    *many, single = pool.nodes
    for node in many:
        await _label(api, node, "a")
    await _label(api, single, "b")
    await _until_pods_get(api, namespace, pool, when="DoNotSchedule")

    by_node = await _nodes_of(api, namespace, pool, count=8)

    assert by_node[single] == 4
    assert sum(by_node[node] for node in many) == 4


async def test_a_node_without_the_zone_still_takes_pods(make_pool, api, namespace):
    """Lesson 3: a node without the key is not shut out, and its devices are not idle."""
    pool = await make_pool(nodes=2, devices=2, scheduling=SPREAD)
    await _label(api, pool.nodes[0], "a")
    await _until_pods_get(api, namespace, pool, when="ScheduleAnyway")

    by_node = await _nodes_of(api, namespace, pool, count=4)

    assert by_node == dict.fromkeys(pool.nodes, 2)


async def test_zone_that_is_away_keeps_no_pod_of_the_others_waiting(make_pool, api, namespace):
    """Neither pods that were admitted while it was there, nor those that come now."""
    pool = await make_pool(nodes=2, devices=4, scheduling=SPREAD)
    stays, goes = pool.nodes
    await _label(api, stays, "a")
    await _label(api, goes, "b")
    await _until_pods_get(api, namespace, pool, when="DoNotSchedule")
    for number in range(3):
        gated = a_pod(f"p-{number}", pool)
        gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
        created = await api.create(pods.collection(namespace), gated)
        (constraint,) = created["spec"]["topologySpreadConstraints"]
        assert constraint["whenUnsatisfiable"] == "DoNotSchedule"

    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordon = {"spec": {"unschedulable": True, "taints": [taint]}}
    await api.patch(f"/api/v1/nodes/{goes}", cordon)
    for number in range(3):
        path = f"{pods.collection(namespace)}/p-{number}"
        await api.patch(path, {"spec": {"schedulingGates": None}})

    found = await pods.wait_for_pods(api, namespace, partial(all_bound, count=3))
    assert {pod["spec"]["nodeName"] for pod in found.values()} == {stays}
    await _until_pods_get(api, namespace, pool, when="ScheduleAnyway")
    await api.create(pods.collection(namespace), a_pod("late", pool))
    await pods.wait_for_pod(api, namespace, "late")


async def test_pods_of_a_pool_that_packs_fill_one_node_first(make_pool, api, namespace):
    pool = await make_pool(nodes=3, devices=4, scheduling={"strategy": "BinPack"})

    by_node = await _nodes_of(api, namespace, pool, count=4)

    assert list(by_node.values()) == [4]


@pytest.mark.parametrize("scheduling", [{}, {"strategy": "LeastFragmentation"}])
async def test_whole_devices_go_where_the_fewest_are_left(make_pool, api, namespace, scheduling):
    """LeastFragmentation is the default for whole devices: the node with two left, not the one with four."""
    pool = await make_pool(nodes=2, devices=4, scheduling=scheduling)

    by_node = await _nodes_of(api, namespace, pool, count=2, units=2)

    assert list(by_node.values()) == [2]

"""What pods require and prefer counts with a reservation, as it does without one on the stock kube-scheduler."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from api.names import PoolName, pool_node_label
from tests.cluster.environment import client, pods
from tests.cluster.system.objects import Pool, a_pod, reservation_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
SOFT = {
    "topologySpreadConstraints": [{**TERM, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
    "affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": TERM}]}},
}
APART = {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}}


@pytest.fixture(autouse=True)
async def stock_scheduler(start_scheduler: "Callable[..., Awaitable[Any]]") -> None:
    await start_scheduler()


def preferring(node: str) -> dict[str, Any]:
    expression = {"key": HOST, "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"affinity": {"nodeAffinity": {PREFERRED: [term]}}}


def with_units(name: str, pool: Pool, terms: dict[str, Any]) -> client.JsonObject:
    pod = a_pod(name, pool, labels={"app": "web"})
    pod["spec"] |= terms
    return pod


def plain(name: str, pool: Pool, terms: dict[str, Any]) -> client.JsonObject:
    """A pod without units that the stock scheduler places on the pool's nodes."""
    pod = pods.a_pod(name, labels={"app": "web"})
    label = pool_node_label(PoolName(pool.name))
    pod["spec"] |= {**terms, "nodeSelector": {label: ""}}
    return pod


async def nodes_of(
    api: client.ApiClient, namespace: str, created: list[client.JsonObject]
) -> Counter[str]:
    """Create the pods at once; return their nodes."""
    names = [pod["metadata"]["name"] for pod in created]
    for pod in created:
        await api.create(pods.collection(namespace), pod)
    found = [await pods.wait_for_pod(api, namespace, name) for name in names]
    return Counter(pod["spec"]["nodeName"] for pod in found)


@pytest.mark.parametrize(
    ("make", "reserve"), [(plain, "Node"), (with_units, "Node"), (with_units, "Units")]
)
async def test_replicas_that_prefer_to_be_apart_are_on_three_nodes(
    make_pool, api, namespace, make, reserve
):
    pool = await make_pool(nodes=3, devices=4, scheduling={"reserve": reserve})

    found = await nodes_of(api, namespace, [make(f"p-{i}", pool, SOFT) for i in range(3)])

    assert found == dict.fromkeys(pool.nodes, 1)


@pytest.mark.parametrize(
    "scheduling",
    [{"strategy": "LeastFragmentation"}, {"strategy": "BinPack"}, {"reserve": "Units"}],
    ids=lambda scheduling: next(iter(scheduling.values())),
)
async def test_pods_that_prefer_a_node_are_on_it(make_pool, api, namespace, scheduling):
    pool = await make_pool(nodes=3, devices=6, scheduling=scheduling)
    node = pool.nodes[-1]

    for make in (plain, with_units):
        created = [
            make(f"{make.__name__.replace('_', '-')}-{i}", pool, preferring(node)) for i in range(6)
        ]
        assert await nodes_of(api, namespace, created) == {node: 6}


async def test_no_reservation_is_where_required_anti_affinity_keeps_the_pod_away(
    make_pool, api, namespace
):
    """Beside a pod without units, a pod with units, and one more than there are nodes for."""
    pool = await make_pool(nodes=3, devices=4)
    beside = await nodes_of(api, namespace, [plain("plain", pool, {})])

    created = [
        await api.create(pods.collection(namespace), with_units(f"p-{i}", pool, APART))
        for i in range(3)
    ]

    reserved = [reservation_of(pod).get("node") for pod in created]
    assert set(reserved[:2]) == {*pool.nodes} - {*beside}
    assert reserved[2] is None
    for pod, node in zip(created[:2], reserved, strict=False):
        bound = await pods.wait_for_pod(api, namespace, pod["metadata"]["name"])
        assert bound["spec"]["nodeName"] == node

"""Required topology and SameDevice on an unmodified kube-scheduler: passed over with the reason, and preempted for."""

import secrets
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import client, pods
from tests.cluster.system.objects import DEVICES, a_device, a_pod, check_devices, units_of

if TYPE_CHECKING:
    from tests.cluster.system.objects import Pool

PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
REQUIRED = {"deviceTopology": "Required"}


@pytest.fixture
async def high(api):
    """The name of a PriorityClass above the default."""
    name = f"high-{secrets.token_hex(3)}"
    await api.create(PRIORITIES, {"metadata": {"name": name}, "value": 1000})
    yield name
    await api.delete(f"{PRIORITIES}/{name}")


async def on_two_sockets(api: client.ApiClient, pool: "Pool", *, devices: int) -> None:
    """Report the first half of each node's devices on NUMA node 0, and the others on 1."""
    for node in pool.nodes:
        for index in range(devices):
            name = a_device(node, index, pool.name)["metadata"]["name"]
            socket = {"status": {"numaNode": index * 2 // devices}}
            await api.patch(f"{DEVICES}/{name}/status", socket)


def socket_of(unit: str, *, devices: int) -> int:
    return int(unit.rsplit("-", 1)[1]) * 2 // devices


def pinned(pod: client.JsonObject, node: str) -> client.JsonObject:
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


async def fill(
    api: client.ApiClient, namespace: str, pool: "Pool", node: str, *, count: int
) -> dict[str, int]:
    """Run pods of one device on a node; return the NUMA node of each."""
    names = [f"low-{number}" for number in range(count)]
    for name in names:
        await api.create(pods.collection(namespace), pinned(a_pod(name, pool), node))
    low = [await pods.wait_for_pod(api, namespace, name, pods.is_running) for name in names]
    return {pod["metadata"]["name"]: socket_of(units_of(pod)[0], devices=count) for pod in low}


async def test_a_node_with_enough_but_unaligned_devices_is_passed_over(
    make_pool, api, namespace, figures
):
    pool = await make_pool(nodes=2, devices=4, scheduling=REQUIRED)
    await on_two_sockets(api, pool, devices=4)
    full, empty = pool.nodes
    sockets = await fill(api, namespace, pool, full, count=4)
    for socket in (0, 1):
        gone = next(name for name, place in sockets.items() if place == socket)
        await api.delete(f"{pods.collection(namespace)}/{gone}")
        await pods.wait_for_pod_gone(api, namespace, gone)
    await figures(pool, used=2)

    await api.create(pods.collection(namespace), pinned(a_pod("stays", pool, 2), full))
    await api.create(pods.collection(namespace), a_pod("goes", pool, 2))

    goes = await pods.wait_for_pod(api, namespace, "goes")
    assert goes["spec"]["nodeName"] == empty
    assert len({socket_of(unit, devices=4) for unit in units_of(goes)}) == 1
    stays = await pods.wait_for_pod(api, namespace, "stays", pods.is_unschedulable)
    message = pods.scheduled_condition(stays)["message"]
    assert (
        "2 requested and 2 free, but of these at most 1 are on one NUMA node or connected by NVLink"
        in message
    )


async def test_preemption_frees_an_aligned_set(high, make_pool, api, namespace):
    pool = await make_pool(devices=4, scheduling=REQUIRED)
    await on_two_sockets(api, pool, devices=4)
    sockets = await fill(api, namespace, pool, pool.nodes[0], count=4)

    important = a_pod("high", pool, 2)
    important["spec"]["priorityClassName"] = high
    await api.create(pods.collection(namespace), important)

    preemptor = await pods.wait_for_pod(api, namespace, "high")
    (socket,) = {socket_of(unit, devices=4) for unit in units_of(preemptor)}
    listing = await api.get(pods.collection(namespace))
    left = [pod for pod in listing["items"] if "deletionTimestamp" not in pod["metadata"]]
    names = {pod["metadata"]["name"] for pod in left}
    assert names.isdisjoint(name for name, place in sockets.items() if place == socket)
    check_devices(left)


async def test_a_preemptor_of_a_part_of_a_device_gets_it_on_one_device(
    high, make_pool, api, namespace
):
    allocation = {"mode": "TimeSlice", "slicesPerDevice": 4, "slicePlacement": "SameDevice"}
    pool = await make_pool(devices=2, slices=4, allocation=allocation)
    for number in range(4):
        await api.create(pods.collection(namespace), a_pod(f"low-{number}", pool, 2))
    for number in range(4):
        await pods.wait_for_pod(api, namespace, f"low-{number}", pods.is_running)

    important = a_pod("high", pool, 4)
    important["spec"]["priorityClassName"] = high
    await api.create(pods.collection(namespace), important)

    preemptor = await pods.wait_for_pod(api, namespace, "high")
    assert len({unit.partition("::")[0] for unit in units_of(preemptor)}) == 1

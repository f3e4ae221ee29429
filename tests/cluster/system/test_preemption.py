"""A pod of a higher priority takes the devices of a lower one, and nobody steals them in between."""

import contextlib
import secrets
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import a_pod, check_devices, devices_of, reservation_of

if TYPE_CHECKING:
    from tests.cluster.system.installation import GpuSystem

PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
async def high(api):
    """The name of a PriorityClass above the default."""
    name = f"high-{secrets.token_hex(3)}"
    await api.create(PRIORITIES, {"metadata": {"name": name}, "value": 1000})
    yield name
    await api.delete(f"{PRIORITIES}/{name}")


def important(name: str, pool, units: int, priority: str) -> client.JsonObject:
    pod = a_pod(name, pool, units)
    pod["spec"]["priorityClassName"] = priority
    return pod


async def test_preemptor_gets_the_devices_of_its_victim(high, make_pool, api, namespace, figures):
    pool = await make_pool(devices=2)
    for name in ("low-0", "low-1"):
        await api.create(pods.collection(namespace), a_pod(name, pool))
    low = {
        name: await pods.wait_for_pod(api, namespace, name, pods.is_running)
        for name in ("low-0", "low-1")
    }

    await api.create(pods.collection(namespace), important("high", pool, 1, high))

    preemptor = await pods.wait_for_pod(api, namespace, "high")
    listing = await api.get(pods.collection(namespace))
    left = {pod["metadata"]["name"] for pod in listing["items"]} - {"high"}
    assert len(left) == 1
    (victim,) = set(low) - left
    assert devices_of(preemptor) == devices_of(low[victim])
    check_devices([preemptor, *(low[name] for name in left)])
    await figures(pool, used=2, reserved=0)


async def test_room_made_by_preemption_is_not_reserved_for_a_lower_pod(
    high, make_pool, system, api, kubelets, namespace
):
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), a_pod("victim", pool, 2))
    victim = await pods.wait_for_pod(api, namespace, "victim", pods.is_running)
    with _paused(kubelets):
        await api.create(pods.collection(namespace), important("high", pool, 2, high))
        await pods.wait_for_pod(api, namespace, "high", _is_nominated)
        await pods.wait_for_pod(api, namespace, "victim", _is_terminating)
        await system.scheduler.stop()

    # The victim is gone, its units are free, and nobody has bound the preemptor yet.
    await pods.wait_for_pod_gone(api, namespace, "victim")
    await api.create(pods.collection(namespace), a_pod("thief", pool))

    assert "node" not in reservation_of(await api.get(f"{pods.collection(namespace)}/thief"))
    await system.scheduler.start()
    preemptor = await pods.wait_for_pod(api, namespace, "high")
    assert devices_of(preemptor) == devices_of(victim)
    assert not pods.is_bound(await api.get(f"{pods.collection(namespace)}/thief"))


async def test_nobody_is_evicted_for_units_that_are_only_reserved(
    high, make_pool, system, api, namespace
):
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), a_pod("bystander", pool))
    await pods.wait_for_pod(api, namespace, "bystander", pods.is_running)
    stuck = a_pod("stuck", pool)
    stuck["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1000"
    await api.create(pods.collection(namespace), stuck)
    assert reservation_of(await api.get(f"{pods.collection(namespace)}/stuck"))["node"]

    # One unit is held for a pod that cannot run, one is used: an eviction would not free two.
    before = await _preempt_calls(system)
    await api.create(pods.collection(namespace), important("high", pool, 2, high))
    await pods.wait_for_pod(api, namespace, "high", pods.is_unschedulable)

    async def is_considered() -> bool:
        return await _preempt_calls(system) > before

    await polling.eventually(is_considered, what="a call of preempt")
    bystander = await api.get(f"{pods.collection(namespace)}/bystander")
    assert "deletionTimestamp" not in bystander["metadata"]


async def _preempt_calls(system: "GpuSystem") -> float:
    return (await system.metrics()).total("gpu_extender_duration_seconds_count", verb="preempt")


def _is_nominated(pod: client.JsonObject) -> bool:
    return bool(pod.get("status", {}).get("nominatedNodeName"))


def _is_terminating(pod: client.JsonObject) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@contextlib.contextmanager
def _paused(kubelets):
    kubelets.pause()
    try:
        yield
    finally:
        kubelets.resume()

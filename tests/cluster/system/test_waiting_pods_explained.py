"""A pod that waits says why, and saying so wakes no kube-scheduler."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.bench_cluster.figures import scheduler_metrics
from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import Pool, a_pod

if TYPE_CHECKING:
    from tests.cluster.system.installation import GpuSystem

CONDITION = "gpu.deckhouse.io/UnitsAvailable"
APPLY: Any = {"kind": "apply", "fieldManager": "gpu-control-plane/pod-explanation", "force": "true"}
WRITES = 20


def units_condition(pod: "client.JsonObject") -> "client.JsonObject":
    """Return the condition, empty where there is none."""
    found: list[client.JsonObject] = pod.get("status", {}).get("conditions", [])
    return next((item for item in found if item["type"] == CONDITION), {})


async def queued(system: "GpuSystem") -> float:
    """Return how often kube-scheduler put a pod where it is tried, for whatever reason."""
    metrics = await scheduler_metrics(system.scheduler.url)
    name = "scheduler_queue_incoming_pods_total"
    return metrics.total(name, queue="active") + metrics.total(name, queue="backoff")


@pytest.fixture
async def full_pool(make_pool, api, namespace) -> Pool:
    """A pool of one node, whose units a running pod has."""
    pool: Pool = await make_pool(nodes=1, devices=2)
    await api.create(pods.collection(namespace), a_pod("first", pool, units=2))
    await pods.wait_for_pod(api, namespace, "first", pods.is_running)
    return pool


async def add_unschedulable(
    api: "client.ApiClient", namespace: str, name: str, pool: Pool
) -> "client.JsonObject":
    """Return a pod that does not fit, once kube-scheduler has tried it."""
    await api.create(pods.collection(namespace), a_pod(name, pool, units=2))
    return await pods.wait_for_pod(api, namespace, name, pods.is_unschedulable)


async def add_explained(
    api: "client.ApiClient", namespace: str, name: str, pool: Pool
) -> "client.JsonObject":
    """Return such a pod once it says why it waits."""
    await add_unschedulable(api, namespace, name, pool)
    return await pods.wait_for_pod(
        api, namespace, name, lambda pod: units_condition(pod).get("status") == "False"
    )


def a_condition(pod: "client.JsonObject", message: str) -> "tuple[str, client.JsonObject]":
    """Return path and body of a write of the condition as the server writes it."""
    name, namespace, uid = (pod["metadata"][key] for key in ("name", "namespace", "uid"))
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": uid},
        "status": {"conditions": [{**units_condition(pod), "message": message}]},
    }
    return f"{pods.collection(namespace)}/{name}/status", body


async def test_a_condition_written_twenty_times_moves_no_pod_in_kube_schedulers_queue(
    full_pool, system, api, namespace
):
    pod = await add_explained(api, namespace, "second", full_pool)
    assert units_condition(pod)["reason"] == "UnitsExhausted"
    assert pods.is_unschedulable(pod), "the condition of kube-scheduler stays"

    before = await queued(system)
    for number in range(WRITES):
        await api.patch(*a_condition(pod, f"message {number}"), **APPLY)
    # kube-scheduler sees pods in the order of their versions: the writes before this pod.
    await add_unschedulable(api, namespace, "third", full_pool)
    assert await queued(system) - before == 1

    # It is the right count: an event by which both pods may fit has them tried again.
    first = f"{pods.collection(namespace)}/first"
    await api.delete(first, options={"gracePeriodSeconds": 0})

    async def are_queued_again() -> bool:
        assert await queued(system) - before >= 3
        return True

    await polling.eventually(are_queued_again, what="both pods are tried again")


async def test_another_pod_of_the_name_is_not_written(full_pool, api, namespace):
    pod = await add_explained(api, namespace, "second", full_pool)
    pod["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"
    with pytest.raises(client.ApiRefusedError) as refused:
        await api.patch(*a_condition(pod, "of another pod"), **APPLY)
    assert refused.value.status in {409, 422}

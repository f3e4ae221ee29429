"""A pool is changed and deleted under pods that run: budgets are respected, and nothing is left."""

from typing import Any

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.installation import until_gone
from tests.cluster.system.objects import (
    Pool,
    a_deployment,
    a_pod,
    all_bound,
    devices_of_pool,
    units_of,
)

TAINT = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}


async def _condition(api: client.ApiClient, pool: Pool, type_: str) -> dict[str, Any]:
    return (await api.conditions(pool.path)).get(type_, {})


async def _says(api: client.ApiClient, pool: Pool, type_: str, **expected: str) -> dict[str, Any]:
    """Wait until a condition has these fields; `text` is part of its message."""
    text = expected.pop("text", "")

    async def said() -> dict[str, Any]:
        found = await _condition(api, pool, type_)
        assert {key: found.get(key) for key in expected} == expected, f"{found}"
        assert text in found.get("message", ""), f"{found}"
        return found

    return await polling.eventually(said, what=f"{type_} of {pool.name} with {expected} {text}")


async def test_running_pods_are_evicted_as_their_budget_allows(
    make_pool, kubectl, api, namespace, figures
):
    pool = await make_pool(nodes=1, devices=2)
    deployment = a_deployment("train", pool, replicas=2)
    deployment["metadata"]["namespace"] = namespace
    await kubectl.apply_yaml(deployment)
    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 2))
    before = {pod["metadata"]["uid"] for pod in found.values()}
    labels = deployment["spec"]["selector"]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": labels},
    }
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await api.create(budgets, budget)

    async def is_counted() -> bool:
        status = await api.status(f"{budgets}/train")
        assert status.get("disruptionsAllowed") == 1, f"{status}"
        return True

    await polling.eventually(is_counted, what="the budget")
    allocation = {"mode": "TimeSlice", "slicesPerDevice": 2}
    change = {"allocation": allocation, "maintenance": {"policy": "Evict"}}
    await api.patch(pool.path, {"spec": change})

    await _says(
        api, pool, "Maintenance", status="True", text="a PodDisruptionBudget protects 1 pod"
    )
    await figures(pool, used=1, available=0)
    left = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 1))
    assert {pod["metadata"]["uid"] for pod in left.values()} < before

    await api.delete(f"{budgets}/train")
    await _says(api, pool, "Maintenance", status="False", reason="UpToDate")
    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 2))
    assert not before & {pod["metadata"]["uid"] for pod in found.values()}
    assert all("::" in unit for pod in found.values() for unit in units_of(pod))
    await figures(pool, total=4, used=2, available=2)


async def test_a_pool_in_maintenance_admits_nothing_and_going_back_ends_it(
    make_pool, api, namespace, figures
):
    pool = await make_pool(nodes=1, devices=2)
    await api.create(pods.collection(namespace), a_pod("stays", pool))
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 1))
    sliced = {"mode": "TimeSlice", "slicesPerDevice": 2}
    await api.patch(pool.path, {"spec": {"allocation": sliced}})
    await _says(api, pool, "Maintenance", status="True", reason="WaitingForPods", text="stays")

    change = "changes from Exclusive to TimeSlice [(]2 slices per device[)]"
    with pytest.raises(client.ApiRefusedError, match=f"PoolInMaintenance: .*{change}"):
        await api.create(pods.collection(namespace), a_pod("late", pool))

    back = {"mode": "Exclusive", "slicesPerDevice": None}
    await api.patch(pool.path, {"spec": {"allocation": back}})
    await _says(api, pool, "Maintenance", status="False")
    await api.create(pods.collection(namespace), a_pod("late", pool))
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 2))
    await figures(pool, total=2, used=2)


async def test_a_deleted_pool_waits_for_its_pods_and_leaves_nothing(
    make_pool, api, namespace, figures
):
    """Lesson 8: nothing of it remains on nodes and devices."""
    pool = await make_pool(nodes=2, devices=1, scheduling={"taints": [TAINT]})

    async def marks() -> list[Any]:
        nodes = [await api.get(f"/api/v1/nodes/{node}") for node in pool.nodes]
        taints = [item for node in nodes for item in node["spec"].get("taints", [])]
        label = f"pool.gpu.deckhouse.io/{pool.name}"
        labels = [label for node in nodes if label in node["metadata"]["labels"]]
        return [taint for taint in taints if taint["key"] == TAINT["key"]] + labels

    async def are_marked() -> bool:
        assert await marks() == [TAINT, TAINT, *[f"pool.gpu.deckhouse.io/{pool.name}"] * 2]
        return True

    await polling.eventually(are_marked, what=f"marks of {pool.name}")
    await api.create(pods.collection(namespace), a_pod("runs", pool))
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 1))

    await api.delete(pool.path)

    await _says(api, pool, "Ready", reason="Terminating", text=f"{namespace}/runs")
    await figures(pool, used=1)
    await pods.finish_pod(api, namespace, "runs")
    await api.delete(f"{pods.collection(namespace)}/runs")
    await until_gone(api, pool.path)
    assert await marks() == []
    assert await devices_of_pool(api, pool.name) == []

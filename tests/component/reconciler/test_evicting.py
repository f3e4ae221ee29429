"""Pods in the way of a pool's maintenance are evicted, as their budgets allow."""

from typing import Any

import pytest

from api.names import PodUid
from inventory.pools.maintenance import PodUsage
from kube.resources import PODS
from reconciler.runtime.eviction import EvictionQueue
from telemetry.metrics import REGISTRY
from tests.component.reconciler.cluster import Cluster
from tests.component.reconciler.pool_lives import (
    EXCLUSIVE,
    SLICES,
    allocation,
    allow,
    change,
    maintenance,
    protect,
    run_pass,
    run_pod,
    running,
    until_stable,
)

EVICT = {"maintenance": {"policy": "Evict"}}


def evictions(outcome: str) -> float:
    return REGISTRY.get_sample_value("gpu_evictions_total", {"outcome": outcome}) or 0.0


async def occupant(cluster: Cluster, name: str, uid: str = "") -> PodUsage:
    pod = await cluster.client.get(PODS, dict[str, Any], name, namespace="default")
    uid = uid or pod["metadata"]["uid"]
    return PodUsage(namespace="default", name=name, uid=PodUid(uid), units=1)


async def kubelets_finish(cluster: Cluster) -> None:
    """Pods that are being deleted go."""
    for pod in (await cluster.client.list_(PODS, dict[str, Any])).items:
        if "deletionTimestamp" in pod["metadata"]:
            name = pod["metadata"]["name"]
            await cluster.client.delete(PODS, name, namespace="default", grace_period_s=0)
    await cluster.observe()


async def test_running_pods_are_evicted_where_the_operator_wants_it(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await run_pod(cluster, "b", "GPU-n1-1")
    before = evictions("evicted")
    await change(cluster, **SLICES, **EVICT)
    await run_pass(cluster)
    found = await maintenance(cluster)
    assert (found["status"], found["reason"]) == ("True", "EvictingPods")
    assert "evicts 2 pods with 2 units (default/a, default/b)" in found["message"]
    assert await running(cluster) == []
    assert evictions("evicted") == before + 2
    await kubelets_finish(cluster)
    await run_pass(cluster)
    assert (await allocation(cluster) or {})["mode"] == "TimeSlice"


async def test_a_pod_is_asked_to_go_once(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES, **EVICT)
    before = evictions("evicted")
    for _ in range(5):
        await run_pass(cluster)
        cluster.time.seconds += 60
    assert evictions("evicted") == before + 1


async def test_a_budget_is_respected_and_said_and_asked_again(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await protect(cluster, "a")
    await change(cluster, **SLICES, **EVICT)
    before = evictions("refused")
    await run_pass(cluster)
    found = await maintenance(cluster)
    assert "a PodDisruptionBudget protects 1 pod with 1 unit (default/a)" in found["message"]
    assert await running(cluster) == ["a"]
    await run_pass(cluster)
    assert evictions("refused") == before + 1  # not at every look
    await allow(cluster, "a", 1)
    cluster.time.seconds += 60
    await run_pass(cluster)
    assert await running(cluster) == []
    assert "protects" not in (await maintenance(cluster))["message"]


async def test_a_pod_that_only_waits_is_not_asked_to_go(cluster: Cluster):
    await until_stable(cluster)
    await cluster.add_pod("waits")
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES, **EVICT)
    await run_pass(cluster)
    assert await running(cluster) == ["waits"]


async def test_going_back_ends_the_evictions(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await protect(cluster, "a")
    await change(cluster, **SLICES, **EVICT)
    await run_pass(cluster)
    await change(cluster, **EXCLUSIVE)
    await allow(cluster, "a", 1)
    cluster.time.seconds += 600
    await run_pass(cluster, times=2)
    assert await running(cluster) == ["a"]
    assert (await maintenance(cluster))["status"] == "False"
    await change(cluster, **SLICES, maintenance={"policy": "Wait"})
    await run_pass(cluster)
    assert "protects" not in (await maintenance(cluster))["message"]


@pytest.mark.parametrize(
    ("name", "uid"), [pytest.param("gone", "x", id="gone"), pytest.param("a", "x", id="another")]
)
async def test_a_pod_that_is_gone_or_another_one_is_no_failure(
    cluster: Cluster, name: str, uid: str
):
    await run_pod(cluster, "a", "GPU-n1-0")
    pod = PodUsage(namespace="default", name=name, uid=PodUid(uid), units=1)
    before = evictions("gone")
    ended = await EvictionQueue(cluster.client).evict([pod])
    assert ended.done == (pod,)
    assert evictions("gone") == before + 1
    assert await running(cluster) == ["a"]


@pytest.mark.parametrize("status", [403, 429, 500])
async def test_what_the_server_cannot_do_now_is_counted_and_left(cluster: Cluster, status: int):
    await run_pod(cluster, "a", "GPU-n1-0")
    await run_pod(cluster, "b", "GPU-n1-1")
    cluster.api.faults.fail("POST", "/pods/a/eviction$", status)
    before = evictions("failed")
    pods = [await occupant(cluster, "a"), await occupant(cluster, "b")]
    ended = await EvictionQueue(cluster.client).evict(pods)
    assert [pod.name for pod in ended.failed] == ["a"]
    assert [pod.name for pod in ended.done] == ["b"]
    assert evictions("failed") == before + 1

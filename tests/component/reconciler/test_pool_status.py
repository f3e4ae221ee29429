"""What a pool's status says, when it is written, and when it is left alone."""

from typing import Any

import pytest

from api.names import API_VERSION, PoolName
from kube.errors import Conflict, KubeError, ServerError
from kube.resources import GPU_POOLS, NODES
from reconciler.pool.status import FIELD_MANAGER
from tests.component.reconciler.cluster import Cluster, gauge
from tests.support.allocation_state import a_bound_pod, commit_to
from tests.support.builders import a_pod_facts, at

STATUS_PATH = "/gpupools/whole/status$"
GAUGES = [
    "gpupool_capacity_total",
    "gpupool_capacity_reserved",
    "gpupool_capacity_used",
    "gpupool_capacity_available",
    "gpupool_capacity_unhealthy",
    "gpupool_capacity_missing",
    "gpupool_largest_free",
]


def ready(status: dict[str, Any]) -> dict[str, Any]:
    (condition,) = [item for item in status["conditions"] if item["type"] == "Ready"]
    found: dict[str, Any] = condition
    return found


async def test_a_pool_with_devices_is_ready_and_shows_its_figures(cluster: Cluster):
    """Lesson 1: with nothing configured, a fresh pool reaches Ready."""
    await cluster.reconcile_pool()
    status = await cluster.status_of()
    assert status["phase"] == "Ready"
    assert status["nodes"] == 1
    assert status["observedGeneration"] == 1
    assert status["capacity"] == {
        "total": 2,
        "reserved": 0,
        "used": 0,
        "available": 2,
        "unhealthy": 0,
        "missing": 0,
        "largestFree": 2,
    }
    assert (status["resourceName"], status["strategy"]) == (
        "gpu.deckhouse.io/whole",
        "LeastFragmentation",
    )
    condition = ready(status)
    assert (condition["status"], condition["reason"]) == ("True", "Serving")
    assert condition["message"] == "2 units of gpu.deckhouse.io/whole on 1 node"
    assert condition["observedGeneration"] == 1


async def test_units_that_are_reserved_and_units_that_are_used_are_told_apart(cluster: Cluster):
    commit_to(cluster.allocation_state, a_pod_facts("c"))
    cluster.pods.upsert(a_bound_pod("b", "GPU-n1-1"))
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["capacity"] == {
        "total": 2,
        "reserved": 1,
        "used": 1,
        "available": 0,
        "unhealthy": 0,
        "missing": 0,
        "largestFree": 0,
    }


async def test_pods_that_wait_are_counted_until_they_get_units(cluster: Cluster):
    for name in ("a", "b"):
        cluster.allocation_state.observe_pod(a_pod_facts(name), at(0))
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["waiting"] == 2
    commit_to(cluster.allocation_state, a_pod_facts("a"))
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["waiting"] == 1


async def test_a_status_of_an_older_version_is_read_and_completed(cluster: Cluster):
    figures = {"total": 2, "reserved": 0, "used": 0, "available": 2, "unhealthy": 0}
    status = {"phase": "Ready", "nodes": 1, "capacity": figures}
    await cluster.client.merge_patch(
        GPU_POOLS, {"status": status}, name="whole", subresource="status"
    )
    await cluster.observe()
    read = cluster.catalog.pools[PoolName("whole")].status
    assert (read.capacity.largest_free, read.waiting, read.resource_name) == (0, 0, "")
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["capacity"] == {**figures, "missing": 0, "largestFree": 2}


@pytest.mark.parametrize("runs", [1, 2, 3])
async def test_in_the_steady_state_nothing_is_written(cluster: Cluster, runs: int):
    """Lesson 11."""
    await cluster.reconcile_pool()
    assert cluster.writes() == [("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpupools/whole/status")]
    await cluster.observe()
    for _ in range(runs):
        cluster.time.seconds += 60
        await cluster.reconcile_pool()
    assert cluster.writes() == []


async def test_nothing_is_written_twice_while_the_watch_is_behind(cluster: Cluster):
    for _ in range(3):
        cluster.time.seconds += 9
        await cluster.reconcile_pool()
    assert len(cluster.writes()) == 1


async def test_what_was_written_and_not_seen_yet_is_taken_back_all_the_same(cluster: Cluster):
    await cluster.reconcile_pool()
    await cluster.observe()
    pod = a_pod_facts("c")
    commit_to(cluster.allocation_state, pod)
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["capacity"]["reserved"] == 1
    cluster.allocation_state.release(pod.uid)
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["capacity"]["reserved"] == 0


async def test_a_process_that_starts_again_writes_nothing(cluster: Cluster):
    await cluster.reconcile_pool()
    restarted = Cluster(cluster.api, cluster.client)
    await restarted.observe()
    cluster.writes()
    restarted.time.seconds += 3600
    await restarted.reconcile_pool()
    assert cluster.writes() == []


async def test_the_transition_time_moves_when_ready_does_and_not_before(cluster: Cluster):
    cluster.time.seconds = 0
    await cluster.reconcile_pool()
    assert ready(await cluster.status_of())["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    await cluster.observe()

    cluster.time.seconds = 60
    pod = a_pod_facts("c")
    commit_to(cluster.allocation_state, pod)
    await cluster.reconcile_pool()
    await cluster.observe()
    assert ready(await cluster.status_of())["lastTransitionTime"] == "2026-01-01T00:00:00Z"

    cluster.time.seconds = 120
    await cluster.client.merge_patch(NODES, {"spec": {"unschedulable": True}}, name="n1")
    cluster.allocation_state.release(pod.uid)
    await cluster.observe()
    await cluster.reconcile_pool()
    condition = ready(await cluster.status_of())
    assert (condition["status"], condition["reason"]) == ("False", "NoHealthyDevices")
    assert condition["lastTransitionTime"] == "2026-01-01T00:02:00Z"


async def test_a_pool_without_devices_waits_for_them(cluster: Cluster):
    await cluster.add_pool("empty")
    await cluster.observe()
    await cluster.reconcile_pool("empty")
    status = await cluster.status_of("empty")
    assert (status["phase"], ready(status)["reason"]) == ("Pending", "NoDevices")
    assert status["capacity"]["total"] == 0


async def test_a_pool_whose_devices_are_all_faulted_is_degraded_and_says_so_once(cluster: Cluster):
    at = "2025-01-01T00:00:00Z"
    fault = {"type": "Healthy", "status": "False", "reason": "Xid79", "message": ""}
    fault["lastTransitionTime"] = at
    for number in range(2):
        await cluster.report(f"n1-{number}", conditions=[fault])
    await cluster.observe()
    await cluster.reconcile_pool()
    status = await cluster.status_of()
    assert (status["phase"], ready(status)["reason"]) == ("Degraded", "NoHealthyDevices")
    assert (status["capacity"]["unhealthy"], status["capacity"]["available"]) == (2, 0)
    assert cluster.events() == [], "it was not ready before"

    for _ in range(2):
        await cluster.report("n1-0", conditions=[])
        await cluster.observe()
        await cluster.reconcile_pool()
        ((reason, _),) = cluster.events()
        assert reason == "GPUPoolReady"
        await cluster.report("n1-0", conditions=[fault])
        await cluster.observe()
        await cluster.reconcile_pool()
        await cluster.reconcile_pool()
        ((reason, note),) = cluster.events()
        assert reason == "GPUPoolNotReady"
        assert note.startswith("every device is faulty")


async def test_a_pool_that_is_being_deleted_says_so(cluster: Cluster):
    patch = {"metadata": {"finalizers": ["example.test/wait"]}}
    await cluster.client.merge_patch(GPU_POOLS, patch, name="whole")
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.observe()
    await cluster.reconcile_pool()
    status = await cluster.status_of()
    assert (status["phase"], ready(status)["reason"]) == ("Terminating", "Terminating")


async def test_a_new_generation_is_acknowledged_though_no_figure_changed(cluster: Cluster):
    await cluster.reconcile_pool()
    await cluster.observe()
    patch = {"spec": {"access": {"namespaces": ["ml"]}}}
    await cluster.client.merge_patch(GPU_POOLS, patch, name="whole")
    await cluster.observe()
    assert "whole" in cluster.allocation_state.index.changes.take().pools
    await cluster.reconcile_pool()
    status = await cluster.status_of()
    assert (status["observedGeneration"], ready(status)["observedGeneration"]) == (2, 2)


async def test_a_status_that_somebody_spoiled_is_put_right(cluster: Cluster):
    await cluster.reconcile_pool()
    await cluster.observe()
    cluster.allocation_state.index.changes.take()
    spoiled = {"status": {"phase": "Degraded", "capacity": {"total": 99}}}
    await cluster.client.merge_patch(GPU_POOLS, spoiled, name="whole", subresource="status")
    await cluster.observe()
    assert "whole" in cluster.allocation_state.index.changes.take().pools
    await cluster.reconcile_pool()
    status = await cluster.status_of()
    assert (status["phase"], status["capacity"]["total"]) == ("Ready", 2)


async def test_a_condition_of_somebody_else_stays_and_causes_no_writes(cluster: Cluster):
    await cluster.reconcile_pool()
    foreign = {
        "type": "Audited",
        "status": "True",
        "reason": "Checked",
        "message": "",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    body = {
        "apiVersion": API_VERSION,
        "kind": "GPUPool",
        "metadata": {"name": "whole"},
        "status": {"conditions": [foreign]},
    }
    await cluster.client.apply(GPU_POOLS, body, field_manager="auditor", subresource="status")
    await cluster.observe()
    cluster.writes()
    await cluster.reconcile_pool()
    assert cluster.writes() == []
    commit_to(cluster.allocation_state, a_pod_facts("c"))
    await cluster.reconcile_pool()
    types = {condition["type"] for condition in (await cluster.status_of())["conditions"]}
    assert types == {"Audited", "Ready", "Supported", "Misconfigured", "CapacityLow"}


async def test_a_pool_that_was_deleted_meanwhile_is_no_failure(cluster: Cluster):
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.reconcile_pool()
    with pytest.raises(KubeError, match="not found"):
        await cluster.status_of()


@pytest.mark.parametrize(("code", "error"), [(409, Conflict), (500, ServerError)])
async def test_a_refused_write_raises_and_the_next_attempt_succeeds(
    cluster: Cluster, code: int, error: type[KubeError]
):
    cluster.api.faults.fail("PATCH", STATUS_PATH, code)
    with pytest.raises(error):
        await cluster.reconcile_pool()
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["phase"] == "Ready"


async def test_a_write_whose_answer_was_lost_is_made_again_and_then_no_more(cluster: Cluster):
    cluster.api.faults.reset_after("PATCH", STATUS_PATH)
    with pytest.raises(KubeError):
        await cluster.reconcile_pool()
    await cluster.reconcile_pool()
    await cluster.observe()
    cluster.writes()
    await cluster.reconcile_pool()
    assert cluster.writes() == []


async def test_only_our_field_manager_owns_what_we_write(cluster: Cluster):
    await cluster.reconcile_pool()
    seen = await cluster.client.get(GPU_POOLS, dict[str, Any], "whole")
    managers = {
        field["manager"]
        for field in seen["metadata"]["managedFields"]
        if field.get("subresource") == "status"
    }
    assert managers == {FIELD_MANAGER}


async def test_the_gauges_follow_the_pool_and_go_with_it(cluster: Cluster):
    await cluster.reconcile_pool()
    assert [gauge(name) for name in GAUGES] == [2, 0, 0, 2, 0, 0, 2]
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.observe()
    await cluster.reconcile_pool()
    assert [gauge(name) for name in GAUGES] == [None] * 7
    await cluster.reconcile_pool()


async def test_the_gauges_are_right_though_the_api_server_takes_no_write(cluster: Cluster):
    cluster.api.faults.fail("PATCH", STATUS_PATH, 403)
    with pytest.raises(KubeError):
        await cluster.reconcile_pool()
    assert gauge("gpupool_capacity_total") == 2

"""A pool that is deleted: what holds it up is named, and nothing of it remains."""

from typing import Any

import pytest

from api.names import POOL_FINALIZER, pool_node_label
from kube.errors import NotFound
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.component.reconciler.pool_lives import (
    POOL,
    WHOLE,
    end_pod,
    finalizers,
    pool,
    run_pass,
    run_pod,
    until_stable,
)
from tests.support.allocation_state import reserve
from tests.support.builders import a_demand
from tests.support.cancellation import at_every_suspension, runs_through


async def delete(cluster: Cluster) -> None:
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.observe()


async def release_devices(cluster: Cluster) -> None:
    """What the assignment does once no pod uses them."""
    for name in ("n1-0", "n1-1"):
        await cluster.client.merge_patch(
            GPU_DEVICES, {"status": {"poolRef": None}}, name=name, subresource="status"
        )
    await cluster.observe()


async def is_gone(cluster: Cluster) -> bool:
    try:
        await pool(cluster)
    except NotFound:
        return True
    return False


async def test_a_pool_stays_until_devices_marks_and_workloads_are_gone(cluster: Cluster):
    """Lesson 8: nothing of a deleted pool remains."""
    await until_stable(cluster)
    mark = {"metadata": {"labels": {pool_node_label(WHOLE): ""}}}
    await cluster.client.merge_patch(NODES, mark, name="n1")
    cluster.workloads["whole"] = ["DaemonSet gpu-device-plugin-whole"]
    await delete(cluster)
    assert await run_pass(cluster) is not None
    assert await finalizers(cluster) == [POOL_FINALIZER]

    await release_devices(cluster)
    assert await run_pass(cluster) is not None
    unmark = {"metadata": {"labels": {pool_node_label(WHOLE): None}}}
    await cluster.client.merge_patch(NODES, unmark, name="n1")
    await cluster.observe()
    assert await run_pass(cluster) is not None
    cluster.workloads.clear()
    assert not await is_gone(cluster)
    assert await run_pass(cluster) is None
    assert await is_gone(cluster)
    assert cluster.writes()[-1] == POOL


async def test_a_device_that_is_kept_out_and_still_names_the_pool_holds_it_up(cluster: Cluster):
    await until_stable(cluster)
    for name in ("n1-0", "n1-1"):
        await cluster.report(name, managed=False)
    await delete(cluster)
    assert await run_pass(cluster) is not None
    await release_devices(cluster)
    await run_pass(cluster)
    assert await is_gone(cluster)


async def test_pods_that_still_run_are_named_once_and_hold_it_up(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await delete(cluster)
    await run_pass(cluster, times=3)
    text = "being deleted; waiting for 1 pod with 1 unit (default/a)"
    assert cluster.events() == [("GPUPoolTerminating", text)]
    await cluster.pool_status.reconcile(WHOLE)
    status = await cluster.status_of()
    assert status["phase"] == "Terminating"
    (ready,) = [condition for condition in status["conditions"] if condition["type"] == "Ready"]
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "Terminating", text)
    await end_pod(cluster, "a")
    await release_devices(cluster)
    await run_pass(cluster)
    assert await is_gone(cluster)


async def test_nothing_is_given_out_of_a_pool_that_ends(cluster: Cluster):
    await until_stable(cluster)
    reservation = reserve(cluster.allocation_state, a_demand(1))
    await delete(cluster)
    assert cluster.allocation_state.index.state(WHOLE).capacity().available == 0
    await run_pass(cluster)
    assert cluster.allocation_state.ledger.get(reservation.id) is None


async def test_a_finalizer_of_somebody_else_stays(cluster: Cluster):
    theirs = {"metadata": {"finalizers": ["example.com/theirs"]}}
    await cluster.client.merge_patch(GPU_POOLS, theirs, name="whole")
    await cluster.observe()
    await until_stable(cluster)
    await release_devices(cluster)
    await delete(cluster)
    await run_pass(cluster)
    assert await finalizers(cluster) == ["example.com/theirs"]
    cluster.writes()
    await run_pass(cluster)
    assert cluster.writes() == []


async def test_a_pool_without_our_finalizer_is_not_touched_while_it_goes(cluster: Cluster):
    theirs = {"metadata": {"finalizers": ["example.com/theirs"]}}
    await cluster.client.merge_patch(GPU_POOLS, theirs, name="whole")
    await delete(cluster)
    assert await run_pass(cluster) is None
    assert cluster.writes()[-1][0] == "DELETE"


@pytest.mark.parametrize("runs", [1, 2])
async def test_an_end_cut_at_any_await_is_finished_by_the_next_process(runs: int):
    """Lesson 8: a restart in the middle still finishes."""

    async def attempt(number: int) -> bool:
        async with a_cluster() as cluster:
            await until_stable(cluster)
            await run_pod(cluster, "a", "GPU-n1-0")
            await delete(cluster)

            async def live() -> None:
                await run_pass(cluster, times=runs)
                await end_pod(cluster, "a")
                await release_devices(cluster)
                await run_pass(cluster)

            is_through = await runs_through(live(), cancel_at=number)
            restarted: Any = Cluster(cluster.api, cluster.client)
            pods = await _pods(restarted)
            for name in pods:
                await end_pod(restarted, name)
            await release_devices(restarted)
            await run_pass(restarted)
            assert await is_gone(restarted)
            return is_through

    assert await at_every_suspension(attempt) > 5


async def _pods(cluster: Cluster) -> list[str]:
    await cluster.observe()
    return [pod.name for pod in cluster.allocation_state.reader.pods.all()]

"""`device.assignment` with another writer, and cut anywhere: one owner, nothing lost, at rest in the end."""

import asyncio

import pytest

from api.names import PodUid, UnitId
from kube.errors import Unreachable
from kube.resources import GPU_DEVICES, GPU_POOLS
from tests.component.reconciler.assignment_run import AssignmentRun
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.support.cancellation import at_every_suspension, runs_through

pytestmark = pytest.mark.looptime


async def a_node(cluster: Cluster) -> AssignmentRun:
    """Node n1 with one device in no pool."""
    for name in ("n1-0", "n1-1"):
        await cluster.client.delete(GPU_DEVICES, name)
    await cluster.add_pool("other")
    found = AssignmentRun(cluster)
    await found.device("n1-0")
    await found.inventory()
    await found.observe()
    return found


async def test_two_replicas_that_want_a_device_for_two_pools_make_one_owner(cluster):
    """Lesson 7: two racing writers end in one winner and no flapping."""
    one = await a_node(cluster)
    two = AssignmentRun(cluster, replica=True)
    await one.annotate("n1-0", "whole")
    await one.observe()
    await one.annotate("n1-0", "other")
    await two.observe()

    async with asyncio.TaskGroup() as group:
        for replica in (one, two):
            group.create_task(replica.reconcile())

    assert await one.owners() == {"n1-0": "other"}
    for replica in (one, two):
        await replica.until_stable()
    assert await one.step() == []
    assert await two.step() == []
    assert await one.owners() == {"n1-0": "other"}


async def test_decision_on_an_old_sight_changes_nothing_and_is_tried_again(cluster):
    """Lesson 7: compare and set."""
    one = await a_node(cluster)
    await one.annotate("n1-0", "whole")
    await one.observe()
    await cluster.report("n1-0", poolRef={"name": "other"})

    assert await one.reconcile() is not None

    assert await one.owners() == {"n1-0": "other"}


async def test_release_on_an_old_sight_takes_nothing_off(cluster):
    one = await a_node(cluster)
    await cluster.report("n1-0", poolRef={"name": "whole"})
    await one.step()
    await one.observe()
    await one.annotate("n1-0", "whole")

    await one.reconcile()

    assert await one.owners() == {"n1-0": "whole"}
    await one.until_stable()
    assert await one.assigned() == ("True", "Assigned")


async def test_device_that_comes_into_use_while_others_are_written_is_not_released(cluster):
    """A pod is bound around us between decision and write."""
    one = await a_node(cluster)
    await one.device("n1-1")
    for name in ("n1-0", "n1-1"):
        await cluster.report(name, poolRef={"name": "whole"})
    await one.step()
    await one.observe()

    async def and_then_a_pod_is_bound() -> None:
        await asyncio.sleep(0)
        units = (UnitId("GPU-n1-1"),)
        cluster.allocation_state.index.set_observed(PodUid("p"), units)

    async with asyncio.TaskGroup() as group:
        group.create_task(one.reconcile())
        group.create_task(and_then_a_pod_is_bound())

    assert await one.owners() == {"n1-0": None, "n1-1": "whole"}


WRITES = {"claim": 2, "move": 5, "ignore": 5, "delete pool": 5}
"""Of a device and its inventory: claimed; or draining, released, free or another's, and what the node shows."""


@pytest.mark.parametrize("is_written", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("change", WRITES)
async def test_cut_at_any_write_the_next_leader_brings_it_to_rest(change: str, is_written: bool):
    """A process dies before or after each of its writes; another one goes on with what the API server has."""
    cuts = 0
    for number in range(1, 10):
        async with a_cluster() as cluster:
            one = await a_node(cluster)
            if change != "claim":
                await one.annotate("n1-0", "whole")
                await one.until_stable()
            want = await _change(one, change)
            faults = cluster.api.faults
            lose = faults.reset_after if is_written else faults.reset_before
            lose("PATCH", "/status$", nth=number)
            try:
                await one.until_stable()
            except Unreachable:
                cuts += 1
            else:
                break
            other = AssignmentRun(cluster, replica=True)
            await other.until_stable()
            assert await other.owners() == {"n1-0": want}
            assert await other.step() == []
            current = (await other.pools_of()).get("assigned", [])
            assert current == ([{"pool": want, "devices": ["n1-0"]}] if want else [])
    assert cuts >= WRITES[change] - 1


async def test_cancelled_anywhere_a_reconcile_leaves_what_the_next_one_finishes():
    async def attempt(number: int) -> bool:
        async with a_cluster() as cluster:
            one = await a_node(cluster)
            await one.annotate("n1-0", "whole")
            await one.observe()
            is_through = await runs_through(one.reconcile(), cancel_at=number)
            one.start()
            await one.until_stable()
            assert await one.owners() == {"n1-0": "whole"}
            assert await one.step() == []
            return is_through

    # One claim and one write of the inventory, each a suspension at least.
    assert await at_every_suspension(attempt) >= 2


async def _change(run: AssignmentRun, change: str) -> str | None:
    match change:
        case "claim":
            await run.annotate("n1-0", "whole")
            return "whole"
        case "move":
            await run.annotate("n1-0", "other")
            return "other"
        case "ignore":
            await run.label("n1-0", ignore="true")
        case _:
            await run.client.delete(GPU_POOLS, "whole")
    return None

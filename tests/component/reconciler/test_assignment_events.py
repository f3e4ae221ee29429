"""What people see of assignment: the node's readiness and pools, conflicts on both sides, what stays idle."""

import pytest

from api.names import PoolName
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from reconciler.assignment.controller import JUDGED_WITHIN_S
from reconciler.assignment.events import GRACE_S
from tests.component.reconciler.assignment_run import AssignmentRun
from tests.component.reconciler.cluster import Cluster

pytestmark = pytest.mark.looptime

OF_INVENTORY = {"node": "digest"}
"""Label of a device that the inventory made."""
HEALTHY = {
    "type": "Healthy",
    "status": "True",
    "reason": "Healthy",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.fixture
async def run(cluster: Cluster) -> AssignmentRun:
    """Node n1 with one device that is in no pool."""
    for name in ("n1-0", "n1-1"):
        await cluster.client.delete(GPU_DEVICES, name)
    found = AssignmentRun(cluster)
    await found.device("n1-0")
    await found.observe()
    return found


async def approve(run: AssignmentRun, *pools: str) -> None:
    for name in pools:
        if name != "whole":
            await run.cluster.add_pool(name)
        await run.change_pool(name, assignment={"requireAnnotation": False})


# --- readiness -----------------------------------------------------------------------------------


async def test_node_that_is_not_ready_keeps_its_devices_pending(run):
    await run.inventory(ready=False)
    await run.annotate("n1-0", "whole")
    await run.until_stable()

    assert await run.owners() == {"n1-0": None}
    assert (await run.condition())["message"] == ("node n1 is not ready for pooling: DriverMissing")
    pending = [{"pool": "whole", "devices": ["n1-0"]}]
    assert await run.pools_of() == {"candidates": [], "pending": pending, "assigned": []}
    assert await run.pooled_on() == 0
    assert run.heard.take() == []


async def test_node_that_becomes_ready_gives_its_devices_to_their_pools(run):
    await run.inventory(ready=False)
    await run.annotate("n1-0", "whole")
    await run.until_stable()

    await run.inventory(ready=True)
    await run.until_stable()

    # The API server removes a keyed list that loses its last item by an apply.
    assigned = [{"pool": "whole", "devices": ["n1-0"]}]
    assert await run.pools_of() == {"candidates": [], "assigned": assigned}
    assert await run.pooled_on() == 1


async def test_inventory_of_an_older_version_gets_the_count_with_one_write(run):
    await run.inventory()
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    forgotten = {"status": {"deviceCounts": None}}
    await run.client.merge_patch(GPU_NODE_INVENTORIES, forgotten, name="n1", subresource="status")
    run.start()

    path = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories/n1/status"
    assert await run.step() == [("PATCH", path)]
    assert await run.pooled_on() == 1
    assert await run.step() == []


async def test_node_that_degrades_keeps_its_pools(run):
    await run.annotate("n1-0", "whole")
    await run.inventory(ready=True)
    await run.until_stable()

    await run.inventory(ready=False)
    await run.until_stable()

    assert await run.owners() == {"n1-0": "whole"}


async def test_device_of_the_inventory_waits_for_its_nodes_inventory_and_a_judgement(run):
    await run.label("n1-0", **OF_INVENTORY)
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    assert await run.condition() == {}, "a judgement is about to come"

    run.cluster.time.seconds += JUDGED_WITHIN_S
    await run.until_stable()
    assert await run.assigned() == ("False", "NodeNotReadyForPooling")

    await run.inventory(ready=None)
    await run.until_stable()
    assert await run.assigned() == ("False", "NodeNotReadyForPooling")

    await run.inventory(ready=True)
    await run.until_stable()
    assert await run.assigned() == ("True", "Assigned")


async def test_device_that_was_just_found_is_told_of_once_when_its_node_is_judged_soon(run):
    await run.label("n1-0", **OF_INVENTORY)
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    await run.inventory(ready=True)
    await run.cluster.report("n1-0", conditions=[HEALTHY])

    written = await run.step()

    assert [path for _, path in written if "gpudevices" in path] == [
        "/apis/gpu.deckhouse.io/v1alpha1/gpudevices/n1-0/status"
    ]
    assert await run.assigned() == ("True", "Assigned")


async def test_device_of_the_inventory_waits_for_its_health_before_it_joins_a_pool(run):
    """Otherwise pods could get a device whose fault its agent has reported."""
    await run.label("n1-0", **OF_INVENTORY)
    await run.annotate("n1-0", "whole")
    await run.inventory(ready=True)
    await run.until_stable()
    assert await run.owners() == {"n1-0": None}

    await run.cluster.report("n1-0", conditions=[HEALTHY])
    await run.until_stable()
    assert await run.owners() == {"n1-0": "whole"}


async def test_inventory_of_a_node_that_lost_its_devices_shows_no_pools(run):
    await run.inventory()
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    await run.client.delete(GPU_DEVICES, "n1-0")

    await run.until_stable()

    assert not any((await run.pools_of()).values())
    assert await run.pooled_on() == 0
    assert await run.step() == []


# --- conflicts -----------------------------------------------------------------------------------


async def test_overlap_of_two_pools_is_said_on_device_and_both_pools_once(run):
    """Lesson 7: conflict condition and event; nobody flaps."""
    await approve(run, "whole")
    await run.until_stable()
    run.heard.take()

    await approve(run, "late")
    await run.until_stable()

    assert await run.owners() == {"n1-0": "whole"}
    conflict = await run.pool_conflict("late")
    assert (conflict["status"], conflict["reason"]) == ("True", "OwnedByOtherPool")
    assert conflict["message"].startswith("pool whole has n1-0: change the selectors")
    unopposed = await run.pool_conflict("whole")
    assert (unopposed["status"], unopposed["reason"]) == ("False", "NoConflict")
    heard = run.heard.take()
    assert sorted(heard) == [(name, "GPUAssignmentConflict") for name in ("late", "n1-0", "whole")]
    for _ in range(3):
        assert await run.step() == []
    assert run.heard.take() == []


async def test_condition_that_somebody_else_changed_is_set_right_without_another_event(run):
    await approve(run, "whole")
    await run.until_stable()
    await approve(run, "late")
    await run.until_stable()
    run.heard.take()
    wrong = {**(await run.condition()), "status": "Unknown"}

    await run.cluster.report("n1-0", conditions=[wrong])
    await run.until_stable()

    assert await run.assigned() == ("True", "Assigned")
    assert run.heard.take() == []


async def test_conflict_that_is_over_is_said_to_be(run):
    await approve(run, "whole")
    await run.until_stable()
    await approve(run, "late")
    await run.until_stable()
    since = (await run.pool_conflict("late"))["lastTransitionTime"]
    run.cluster.time.seconds += 60

    await run.change_pool("late", deviceSelector={"include": {"products": ["T4"]}})
    await run.until_stable()

    conflict = await run.pool_conflict("late")
    assert (conflict["status"], conflict["reason"]) == ("False", "NoConflict")
    assert conflict["lastTransitionTime"] > since


async def test_pool_is_not_judged_before_every_node_was_looked_at(run):
    await approve(run, "whole")
    await run.until_stable()
    await approve(run, "late")
    await run.until_stable()
    run.start()
    await run.observe()
    run.cluster.writes()

    assert await run.pool_conflicts.reconcile(PoolName("late")) is not None

    assert run.cluster.writes() == []
    assert (await run.pool_conflict("late"))["status"] == "True"


async def test_conflict_on_many_nodes_is_one_write_of_the_pool(run):
    await approve(run, "whole")
    for number in range(2, 22):
        await run.device(f"n{number}-0")
    await run.until_stable()
    await approve(run, "late")

    writes = await run.step()

    of_pools = [path for _, path in writes if "/gpupools/" in path]
    assert of_pools == ["/apis/gpu.deckhouse.io/v1alpha1/gpupools/late/status"]
    message = (await run.pool_conflict("late"))["message"]
    assert "and 16 more" in message


# --- idle ----------------------------------------------------------------------------------------


async def test_device_that_no_pool_takes_is_told_once_and_not_at_once(run):
    await run.step()
    left_s = await run.reconcile()
    assert run.heard.take() == []
    assert left_s == GRACE_S

    for seconds in (GRACE_S - 1, 2, 60, 600):
        run.cluster.time.seconds += seconds
        await run.step()

    (event,) = run.heard.taken()
    assert (event.regarding.name, event.reason) == ("n1-0", "GPUUnassignedDevice")
    assert event.note == (
        "selected by whole; waits for a decision: `kubectl gpu approve n1-0 whole`, or annotate it with"
        " gpu.deckhouse.io/assignment=whole"
    )


async def test_process_that_starts_later_does_not_tell_all_idle_devices_again(run):
    await run.until_stable()
    run.cluster.time.seconds += 2 * GRACE_S
    run.start()

    await run.until_stable()

    assert run.heard.take() == []


async def test_a_clock_that_was_ahead_puts_no_report_of_an_idle_device_off(run):
    run.cluster.time.wall_ahead_s = 7200.0
    await run.until_stable()
    run.cluster.time.wall_ahead_s = 0.0
    run.start()
    await run.until_stable()
    reported = []
    for _ in range(4):
        run.cluster.time.seconds += GRACE_S
        await run.step()
        reported += run.heard.take()

    assert reported == [("n1-0", "GPUUnassignedDevice")]


async def test_device_that_comes_into_a_pool_in_time_is_not_told(run):
    await run.until_stable()
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    run.heard.take()

    run.cluster.time.seconds += 2 * GRACE_S
    await run.until_stable()

    assert run.heard.take() == []


async def test_ready_node_without_a_pool_is_told_once(run):
    await run.inventory(ready=True)
    await run.until_stable()
    run.cluster.time.seconds += GRACE_S
    await run.step()
    await run.step()

    reported = [item for item in run.heard.take() if item[0] == "n1"]
    assert reported == [("n1", "GPUNodeWithoutPool")]


async def test_device_whose_node_is_not_ready_is_nobodys_fault(run):
    await run.inventory(ready=False)
    await run.until_stable()
    run.cluster.time.seconds += 2 * GRACE_S
    await run.until_stable()

    assert run.heard.take() == []


# --- much at once --------------------------------------------------------------------------------


async def test_many_garbage_annotations_are_one_write_and_one_event_each(run):
    for number in range(1, 30):
        await run.device(f"n1-{number}")
    await run.until_stable()
    for number in range(30):
        await run.annotate(f"n1-{number}", f"No such POOL {number}!")

    await run.observe()
    writes = await run.step()

    assert len([path for _, path in writes if "/gpudevices/" in path]) == 30
    assert len(run.heard.take()) == 30
    assert await run.step() == []


async def test_annotations_of_a_whole_cluster_at_once_are_one_write_each(run, is_long):
    """Half of them make sense; ten thousand in the long form."""
    nodes = 1_250 if is_long else 5
    names = [f"m{node}-{device}" for node in range(nodes) for device in range(1, 9)]
    for name in names:
        await run.device(name, nodeName=name.partition("-")[0])
    await run.until_stable()
    run.heard.take()
    for number, name in enumerate(names):
        await run.annotate(name, "whole" if number % 2 else f"No such POOL {number}!")

    writes = await run.step()
    reported = run.heard.take()

    of_devices = [path for _, path in writes if "/gpudevices/" in path]
    assert len(of_devices) == len(set(of_devices)) == len(names)
    assert len(reported) == len(names)
    assert await run.step() == []
    owners = await run.owners()
    assert [owners[name] for name in names] == [None, "whole"] * (len(names) // 2)


async def test_inventory_that_goes_while_it_is_written_is_no_failure(run):
    await run.inventory()
    await run.annotate("n1-0", "whole")
    await run.observe()
    await run.client.delete(GPU_NODE_INVENTORIES, "n1")

    await run.reconcile()

    assert await run.owners() == {"n1-0": "whole"}

"""What people see of assignment: the node's readiness and pools, conflicts on both sides, what stays idle."""

import pytest

from api.names import PoolName
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from reconciler.assignment.events import GRACE_S
from tests.component.reconciler.assigning import Assigning
from tests.component.reconciler.cluster import Cluster

pytestmark = pytest.mark.looptime

OF_INVENTORY = {"node": "digest"}
"""Label of a device that the inventory made."""


@pytest.fixture
async def assigning(cluster: Cluster) -> Assigning:
    """Node n1 with one card that is in no pool."""
    for name in ("n1-0", "n1-1"):
        await cluster.client.delete(GPU_DEVICES, name)
    found = Assigning(cluster)
    await found.device("n1-0")
    await found.observe()
    return found


async def approve(assigning: Assigning, *pools: str) -> None:
    for name in pools:
        if name != "whole":
            await assigning.cluster.add_pool(name)
        await assigning.change_pool(name, assignment={"requireAnnotation": False})


# --- readiness -----------------------------------------------------------------------------------


async def test_node_that_is_not_ready_keeps_its_devices_pending(assigning):
    await assigning.inventory(ready=False)
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()

    assert await assigning.owners() == {"n1-0": None}
    assert (await assigning.condition())["message"] == (
        "node n1 is not ready for pooling: DriverMissing"
    )
    pending = [{"pool": "whole", "devices": ["n1-0"]}]
    assert await assigning.pools_of() == {"pending": pending, "assigned": []}
    assert assigning.heard.take() == []


async def test_node_that_becomes_ready_gives_its_devices_to_their_pools(assigning):
    await assigning.inventory(ready=False)
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()

    await assigning.inventory(ready=True)
    await assigning.settle()

    assigned = [{"pool": "whole", "devices": ["n1-0"]}]
    assert await assigning.pools_of() == {"pending": [], "assigned": assigned}


async def test_node_that_degrades_keeps_its_pools(assigning):
    await assigning.annotate("n1-0", "whole")
    await assigning.inventory(ready=True)
    await assigning.settle()

    await assigning.inventory(ready=False)
    await assigning.settle()

    assert await assigning.owners() == {"n1-0": "whole"}


async def test_device_of_the_inventory_waits_for_its_nodes_inventory_and_a_judgement(assigning):
    await assigning.label("n1-0", **OF_INVENTORY)
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    assert await assigning.assigned() == ("False", "NodeNotReadyForPooling")

    await assigning.inventory(ready=None)
    await assigning.settle()
    assert await assigning.assigned() == ("False", "NodeNotReadyForPooling")

    await assigning.inventory(ready=True)
    await assigning.settle()
    assert await assigning.assigned() == ("True", "Assigned")


async def test_inventory_of_a_node_that_lost_its_devices_shows_no_pools(assigning):
    await assigning.inventory()
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    await assigning.client.delete(GPU_DEVICES, "n1-0")

    await assigning.settle()

    assert not any((await assigning.pools_of()).values())
    assert await assigning.step() == []


# --- conflicts -----------------------------------------------------------------------------------


async def test_overlap_of_two_pools_is_said_on_device_and_both_pools_once(assigning):
    """Lesson 7: conflict condition and event; nobody flaps."""
    await approve(assigning, "whole")
    await assigning.settle()
    assigning.heard.take()

    await approve(assigning, "late")
    await assigning.settle()

    assert await assigning.owners() == {"n1-0": "whole"}
    conflict = await assigning.pool_conflict("late")
    assert (conflict["status"], conflict["reason"]) == ("True", "OwnedByOtherPool")
    assert conflict["message"].startswith("pool whole has n1-0: change the selectors")
    assert await assigning.pool_conflict("whole") == {}
    heard = assigning.heard.take()
    assert sorted(heard) == [(name, "GPUAssignmentConflict") for name in ("late", "n1-0", "whole")]
    for _ in range(3):
        assert await assigning.step() == []
    assert assigning.heard.take() == []


async def test_condition_that_somebody_else_changed_is_set_right_without_another_event(assigning):
    await approve(assigning, "whole")
    await assigning.settle()
    await approve(assigning, "late")
    await assigning.settle()
    assigning.heard.take()
    wrong = {**(await assigning.condition()), "status": "Unknown"}

    await assigning.cluster.report("n1-0", conditions=[wrong])
    await assigning.settle()

    assert await assigning.assigned() == ("True", "Assigned")
    assert assigning.heard.take() == []


async def test_conflict_that_is_over_is_said_to_be(assigning):
    await approve(assigning, "whole")
    await assigning.settle()
    await approve(assigning, "late")
    await assigning.settle()
    since = (await assigning.pool_conflict("late"))["lastTransitionTime"]
    assigning.cluster.time.seconds += 60

    await assigning.change_pool("late", deviceSelector={"include": {"products": ["T4"]}})
    await assigning.settle()

    conflict = await assigning.pool_conflict("late")
    assert (conflict["status"], conflict["reason"]) == ("False", "NoConflict")
    assert conflict["lastTransitionTime"] > since


async def test_pool_is_not_judged_before_every_node_was_looked_at(assigning):
    await approve(assigning, "whole")
    await assigning.settle()
    await approve(assigning, "late")
    await assigning.settle()
    assigning.start()
    await assigning.observe()
    assigning.cluster.writes()

    assert await assigning.pool_conflicts.reconcile(PoolName("late")) is not None

    assert assigning.cluster.writes() == []
    assert (await assigning.pool_conflict("late"))["status"] == "True"


async def test_conflict_on_many_nodes_is_one_write_of_the_pool(assigning):
    await approve(assigning, "whole")
    for number in range(2, 22):
        await assigning.device(f"n{number}-0")
    await assigning.settle()
    await approve(assigning, "late")

    writes = await assigning.step()

    of_pools = [path for _, path in writes if "/gpupools/" in path]
    assert of_pools == ["/apis/gpu.deckhouse.io/v1alpha1/gpupools/late/status"]
    message = (await assigning.pool_conflict("late"))["message"]
    assert "and 16 more" in message


# --- idle ----------------------------------------------------------------------------------------


async def test_device_that_no_pool_takes_is_told_once_and_not_at_once(assigning):
    await assigning.step()
    left_s = await assigning.reconcile()
    assert assigning.heard.take() == []
    assert left_s == GRACE_S

    for seconds in (GRACE_S - 1, 2, 60, 600):
        assigning.cluster.time.seconds += seconds
        await assigning.step()

    assert assigning.heard.take() == [("n1-0", "GPUUnassignedDevice")]


async def test_process_that_starts_later_does_not_tell_all_idle_devices_again(assigning):
    await assigning.settle()
    assigning.cluster.time.seconds += 2 * GRACE_S
    assigning.start()

    await assigning.settle()

    assert assigning.heard.take() == []


async def test_device_that_comes_into_a_pool_in_time_is_not_told(assigning):
    await assigning.settle()
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    assigning.heard.take()

    assigning.cluster.time.seconds += 2 * GRACE_S
    await assigning.settle()

    assert assigning.heard.take() == []


async def test_ready_node_without_a_pool_is_told_once(assigning):
    await assigning.inventory(ready=True)
    await assigning.settle()
    assigning.cluster.time.seconds += GRACE_S
    await assigning.step()
    await assigning.step()

    told = [one for one in assigning.heard.take() if one[0] == "n1"]
    assert told == [("n1", "GPUNodeWithoutPool")]


async def test_device_whose_node_is_not_ready_is_nobodys_fault(assigning):
    await assigning.inventory(ready=False)
    await assigning.settle()
    assigning.cluster.time.seconds += 2 * GRACE_S
    await assigning.settle()

    assert assigning.heard.take() == []


# --- much at once --------------------------------------------------------------------------------


async def test_many_garbage_annotations_are_one_write_and_one_event_each(assigning):
    for number in range(1, 30):
        await assigning.device(f"n1-{number}")
    await assigning.settle()
    for number in range(30):
        await assigning.annotate(f"n1-{number}", f"No such POOL {number}!")

    await assigning.observe()
    writes = await assigning.step()

    assert len(writes) == 30
    assert len(assigning.heard.take()) == 30
    assert await assigning.step() == []


async def test_annotations_of_a_whole_cluster_at_once_are_one_write_each(assigning, is_long):
    """Half of them make sense; ten thousand in the long form."""
    nodes = 1_250 if is_long else 5
    names = [f"m{node}-{device}" for node in range(nodes) for device in range(1, 9)]
    for name in names:
        await assigning.device(name, nodeName=name.partition("-")[0])
    await assigning.settle()
    assigning.heard.take()
    for number, name in enumerate(names):
        await assigning.annotate(name, "whole" if number % 2 else f"No such POOL {number}!")

    writes = await assigning.step()
    told = assigning.heard.take()

    assert len(writes) == len(set(writes)) == len(names)
    assert len(told) == len(names)
    assert await assigning.step() == []
    owners = await assigning.owners()
    assert [owners[name] for name in names] == [None, "whole"] * (len(names) // 2)


async def test_inventory_that_goes_while_it_is_written_is_no_failure(assigning):
    await assigning.inventory()
    await assigning.annotate("n1-0", "whole")
    await assigning.observe()
    await assigning.client.delete(GPU_NODE_INVENTORIES, "n1")

    await assigning.reconcile()

    assert await assigning.owners() == {"n1-0": "whole"}

"""`device.assignment` against an API server: into a pool, out of it, and what people are told."""

import pytest

from api.names import PodUid, PoolName, UnitId
from kube.errors import Unreachable
from kube.resources import GPU_DEVICES, GPU_POOLS
from tests.component.reconciler.assignment_run import AssignmentRun
from tests.component.reconciler.cluster import Cluster
from tests.support.assignment import UNSUPPORTED

pytestmark = pytest.mark.looptime


@pytest.fixture
async def run(cluster: Cluster) -> AssignmentRun:
    """Node n1 with one device that is in no pool, and two pools."""
    for name in ("n1-0", "n1-1"):
        await cluster.client.delete(GPU_DEVICES, name)
    await cluster.add_pool("other")
    found = AssignmentRun(cluster)
    await found.device("n1-0")
    await found.observe()
    return found


def use(run: AssignmentRun, name: str = "n1-0", pod: str = "p") -> None:
    """Let a bound pod have the device, as the index sees it."""
    run.cluster.allocation_state.index.set_observed(PodUid(pod), (UnitId(f"GPU-{name}"),))


def end(run: AssignmentRun, pod: str = "p") -> None:
    run.cluster.allocation_state.index.set_observed(PodUid(pod), ())


async def test_annotated_device_comes_into_its_pool_with_one_write(run):
    await run.until_stable()
    await run.annotate("n1-0", "whole")

    assert (await run.step())[:1] == [
        ("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpudevices/n1-0/status")
    ]
    assert await run.owners() == {"n1-0": "whole"}
    assert await run.assigned() == ("True", "Assigned")
    assert run.heard.take() == [("n1-0", "GPUDeviceAssigned")]


async def test_device_that_waits_for_a_decision_is_counted_by_its_pools_and_listed_by_its_node(run):
    await run.change_pool("other", deviceSelector={"include": {"products": ["T4"]}})
    await run.inventory()
    await run.until_stable()

    candidates = [{"pool": "whole", "devices": ["n1-0"]}]
    assert await run.pools_of() == {"candidates": candidates, "pending": [], "assigned": []}
    assert (await run.cluster.status_of("whole"))["candidates"] == 1
    assert (await run.cluster.status_of("other"))["candidates"] == 0

    await run.annotate("n1-0", "whole")
    await run.until_stable()

    assert "candidates" not in await run.pools_of()
    assert (await run.cluster.status_of("whole"))["candidates"] == 0
    assert (await run.pool_conflict("whole"))["status"] == "False"


async def test_when_all_is_as_it_should_be_nothing_is_written(run):
    await run.annotate("n1-0", "whole")
    await run.inventory()
    await run.until_stable()

    for _ in range(3):
        assert await run.step() == []
        run.start()
    await run.observe()
    await run.reconcile()
    assert run.cluster.writes() == []


async def test_second_look_before_the_watch_has_shown_the_first_writes_nothing(run):
    await run.annotate("n1-0", "whole")
    await run.inventory()
    await run.observe()
    await run.reconcile()
    run.cluster.writes()

    await run.reconcile()

    assert run.cluster.writes() == []


async def test_refusal_says_why_in_the_condition_and_in_one_event(run):
    await run.change_pool("whole", deviceSelector={"include": {"products": ["T4"]}})
    await run.annotate("n1-0", "whole")
    await run.until_stable()

    assert await run.assigned() == ("False", "SelectorMismatch")
    condition = await run.condition()
    assert condition["message"] == (
        "not in pool whole: the pool's deviceSelector.include.products is T4,"
        " the device has no known value yet"
    )
    assert run.heard.take() == [("n1-0", "GPUAnnotationMismatch")]


async def test_refused_device_is_taken_once_the_pool_selects_it(run):
    await run.change_pool("whole", deviceSelector={"include": {"pciVendors": ["1002"]}})
    await run.annotate("n1-0", "whole")
    await run.until_stable()

    await run.change_pool("whole", deviceSelector={"include": {"pciVendors": ["10DE"]}})
    await run.until_stable()

    assert await run.owners() == {"n1-0": "whole"}


async def test_free_device_leaves_its_pool_step_by_step(run):
    """Lesson 7: a device that loses its annotation leaves; each step is reported once."""
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    run.heard.take()

    await run.annotate("n1-0", None)
    await run.until_stable()

    assert await run.owners() == {"n1-0": None}
    assert await run.assigned() == ("False", "AwaitsDecision")
    assert await run.condition(type_="Draining") == {}
    assert run.heard.take() == [("n1-0", "GPUDeviceDraining"), ("n1-0", "GPUDeviceReleased")]


@pytest.mark.parametrize("way", ["annotation", "ignore", "selector"])
async def test_device_in_use_drains_until_it_is_free(run, way):
    """Lesson 7: selector change or ignore releases the device, and not under a pod."""
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    use(run)

    match way:
        case "annotation":
            await run.annotate("n1-0", None)
        case "ignore":
            await run.label("n1-0", ignore="true")
        case _:
            await run.change_pool("whole", deviceSelector={"include": {"products": ["T4"]}})
    await run.until_stable()

    assert await run.owners() == {"n1-0": "whole"}
    assert (await run.condition(type_="Draining"))["status"] == "True"
    end(run)
    await run.until_stable()
    assert await run.owners() == {"n1-0": None}


async def test_index_gives_out_nothing_of_a_leaving_device_before_anything_is_written(run):
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    index = run.cluster.allocation_state.index
    assert index.state(PoolName("whole")).capacity().available == 1
    await run.annotate("n1-0", None)
    await run.observe()
    run.cluster.api.faults.reset_before("PATCH", "/gpudevices/")

    with pytest.raises(Unreachable):
        await run.reconcile()

    assert index.state(PoolName("whole")).capacity().available == 0
    run.cluster.api.faults.clear()


async def test_device_that_is_wanted_again_is_given_out_again(run):
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    use(run)
    await run.annotate("n1-0", None)
    await run.until_stable()

    await run.annotate("n1-0", "whole")
    await run.until_stable()

    assert await run.condition(type_="Draining") == {}
    end(run)
    assert run.cluster.allocation_state.index.state(PoolName("whole")).capacity().available == 1


async def test_pool_written_by_hand_is_taken_off_like_any_other(run):
    await run.cluster.report("n1-0", poolRef={"name": "whole"})

    await run.until_stable()

    assert await run.owners() == {"n1-0": None}


async def test_pool_written_by_hand_stays_where_the_annotation_says_the_same(run):
    await run.cluster.report("n1-0", poolRef={"name": "whole"})
    await run.annotate("n1-0", "whole")

    await run.until_stable()

    assert await run.owners() == {"n1-0": "whole"}
    assert ("n1-0", "GPUDeviceReleased") not in run.heard.take()


async def test_device_moves_to_another_pool_only_through_being_free(run):
    """Lesson 7: one pool has it, then nobody, then the other."""
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    use(run)
    await run.annotate("n1-0", "other")

    await run.until_stable()
    assert await run.owners() == {"n1-0": "whole"}
    assert (await run.pool_conflict("other"))["status"] == "True"
    assert "pool whole has n1-0" in (await run.pool_conflict("other"))["message"]

    end(run)
    await run.until_stable()
    assert await run.owners() == {"n1-0": "other"}
    assert (await run.pool_conflict("other"))["status"] == "False"


async def test_maximum_counts_what_is_in_the_pool(run):
    """Lesson 6: counted == exported == with poolRef."""
    await run.change_pool("whole", allocation={"maxDevicesPerNode": 2})
    await run.annotate("n1-0", "whole")
    for number in (1, 2):
        await run.device(f"n1-{number}", annotated="whole")

    await run.until_stable()
    await run.observe()

    assert await run.owners() == {"n1-0": "whole", "n1-1": "whole", "n1-2": None}
    assert await run.assigned("n1-2") == ("False", "MaxDevicesPerNode")
    capacity = run.cluster.allocation_state.index.state(PoolName("whole")).capacity()
    assert (capacity.total, capacity.available) == (2, 2)


async def test_unsupported_pool_touches_no_device(run):
    """Lesson 18."""
    run.validity[PoolName("whole")] = UNSUPPORTED
    await run.annotate("n1-0", "whole")

    await run.until_stable()

    assert await run.owners() == {"n1-0": None}
    assert await run.assigned() == ("False", "PoolUnsupported")


async def test_two_spellings_of_an_id_select_the_same_device(run):
    """Lesson 16."""
    await run.cluster.report("n1-0", pci={"vendor": "10DE", "device": "20B2"})
    await run.change_pool(
        "whole",
        deviceSelector={"include": {"pciVendors": ["10de"], "pciDevices": ["20b2"]}},
        assignment={"requireAnnotation": False},
    )

    await run.until_stable()

    assert await run.owners() == {"n1-0": "whole"}


async def test_deleted_pool_lets_go_of_its_devices(run):
    await run.annotate("n1-0", "whole")
    await run.until_stable()
    await run.client.delete(GPU_POOLS, "whole")

    await run.until_stable()

    assert await run.owners() == {"n1-0": None}
    assert await run.assigned() == ("False", "PoolNotFound")

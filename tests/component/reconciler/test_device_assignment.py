"""`device.assignment` against an API server: into a pool, out of it, and what people are told."""

import pytest

from api.names import PodUid, PoolName, UnitId
from kube.errors import Unreachable
from kube.resources import GPU_DEVICES, GPU_POOLS
from tests.component.reconciler.assigning import Assigning
from tests.component.reconciler.cluster import Cluster
from tests.support.assigning import UNSUPPORTED

pytestmark = pytest.mark.looptime


@pytest.fixture
async def assigning(cluster: Cluster) -> Assigning:
    """Node n1 with one card that is in no pool, and two pools."""
    for name in ("n1-0", "n1-1"):
        await cluster.client.delete(GPU_DEVICES, name)
    await cluster.add_pool("other")
    found = Assigning(cluster)
    await found.device("n1-0")
    await found.observe()
    return found


def use(assigning: Assigning, name: str = "n1-0", pod: str = "p") -> None:
    """Let a bound pod have the card, as the index sees it."""
    assigning.cluster.allocation_state.index.set_observed(PodUid(pod), (UnitId(f"GPU-{name}"),))


def end(assigning: Assigning, pod: str = "p") -> None:
    assigning.cluster.allocation_state.index.set_observed(PodUid(pod), ())


async def test_annotated_device_comes_into_its_pool_with_one_write(assigning):
    await assigning.annotate("n1-0", "whole")

    assert await assigning.step() == [
        ("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpudevices/n1-0/status")
    ]
    assert await assigning.owners() == {"n1-0": "whole"}
    assert await assigning.assigned() == ("True", "Assigned")
    assert assigning.heard.take() == [("n1-0", "GPUDeviceAssigned")]


async def test_when_all_is_as_it_should_be_nothing_is_written(assigning):
    await assigning.annotate("n1-0", "whole")
    await assigning.inventory()
    await assigning.settle()

    for _ in range(3):
        assert await assigning.step() == []
        assigning.start()
    await assigning.observe()
    await assigning.reconcile()
    assert assigning.cluster.writes() == []


async def test_second_look_before_the_watch_has_shown_the_first_writes_nothing(assigning):
    await assigning.annotate("n1-0", "whole")
    await assigning.inventory()
    await assigning.observe()
    await assigning.reconcile()
    assigning.cluster.writes()

    await assigning.reconcile()

    assert assigning.cluster.writes() == []


async def test_refusal_says_why_in_the_condition_and_in_one_event(assigning):
    await assigning.change_pool("whole", deviceSelector={"include": {"products": ["T4"]}})
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()

    assert await assigning.assigned() == ("False", "SelectorMismatch")
    condition = await assigning.condition()
    assert condition["message"] == (
        "not in pool whole: the pool's deviceSelector.include.products is T4,"
        " the device has no known value yet"
    )
    assert assigning.heard.take() == [("n1-0", "GPUAnnotationMismatch")]


async def test_refused_device_is_taken_once_the_pool_selects_it(assigning):
    await assigning.change_pool("whole", deviceSelector={"include": {"pciVendors": ["1002"]}})
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()

    await assigning.change_pool("whole", deviceSelector={"include": {"pciVendors": ["10DE"]}})
    await assigning.settle()

    assert await assigning.owners() == {"n1-0": "whole"}


async def test_free_device_leaves_its_pool_step_by_step(assigning):
    """Lesson 7: a device that loses its annotation leaves; each step is told once."""
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    assigning.heard.take()

    await assigning.annotate("n1-0", None)
    await assigning.settle()

    assert await assigning.owners() == {"n1-0": None}
    assert await assigning.assigned() == ("False", "NoPoolWantsIt")
    assert await assigning.condition(type_="Draining") == {}
    assert assigning.heard.take() == [("n1-0", "GPUDeviceDraining"), ("n1-0", "GPUDeviceReleased")]


@pytest.mark.parametrize("way", ["annotation", "ignore", "selector"])
async def test_device_in_use_drains_until_it_is_free(assigning, way):
    """Lesson 7: selector change or ignore releases the device, and not under a pod."""
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    use(assigning)

    match way:
        case "annotation":
            await assigning.annotate("n1-0", None)
        case "ignore":
            await assigning.label("n1-0", ignore="true")
        case _:
            await assigning.change_pool("whole", deviceSelector={"include": {"products": ["T4"]}})
    await assigning.settle()

    assert await assigning.owners() == {"n1-0": "whole"}
    assert (await assigning.condition(type_="Draining"))["status"] == "True"
    end(assigning)
    await assigning.settle()
    assert await assigning.owners() == {"n1-0": None}


async def test_index_gives_out_nothing_of_a_leaving_device_before_anything_is_written(assigning):
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    index = assigning.cluster.allocation_state.index
    assert index.state(PoolName("whole")).capacity().available == 1
    await assigning.annotate("n1-0", None)
    await assigning.observe()
    assigning.cluster.api.faults.reset_before("PATCH", "/gpudevices/")

    with pytest.raises(Unreachable):
        await assigning.reconcile()

    assert index.state(PoolName("whole")).capacity().available == 0
    assigning.cluster.api.faults.clear()


async def test_device_that_is_wanted_again_is_given_out_again(assigning):
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    use(assigning)
    await assigning.annotate("n1-0", None)
    await assigning.settle()

    await assigning.annotate("n1-0", "whole")
    await assigning.settle()

    assert await assigning.condition(type_="Draining") == {}
    end(assigning)
    assert (
        assigning.cluster.allocation_state.index.state(PoolName("whole")).capacity().available == 1
    )


async def test_pool_written_by_hand_is_taken_off_like_any_other(assigning):
    await assigning.cluster.report("n1-0", poolRef={"name": "whole"})

    await assigning.settle()

    assert await assigning.owners() == {"n1-0": None}


async def test_pool_written_by_hand_stays_where_the_annotation_says_the_same(assigning):
    await assigning.cluster.report("n1-0", poolRef={"name": "whole"})
    await assigning.annotate("n1-0", "whole")

    await assigning.settle()

    assert await assigning.owners() == {"n1-0": "whole"}
    assert ("n1-0", "GPUDeviceReleased") not in assigning.heard.take()


async def test_device_moves_to_another_pool_only_through_being_free(assigning):
    """Lesson 7: one pool has it, then nobody, then the other."""
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    use(assigning)
    await assigning.annotate("n1-0", "other")

    await assigning.settle()
    assert await assigning.owners() == {"n1-0": "whole"}
    assert (await assigning.pool_conflict("other"))["status"] == "True"
    assert "pool whole has n1-0" in (await assigning.pool_conflict("other"))["message"]

    end(assigning)
    await assigning.settle()
    assert await assigning.owners() == {"n1-0": "other"}
    assert (await assigning.pool_conflict("other"))["status"] == "False"


async def test_maximum_counts_what_is_in_the_pool(assigning):
    """Lesson 6: counted == exported == with poolRef."""
    await assigning.change_pool("whole", allocation={"maxDevicesPerNode": 2})
    await assigning.annotate("n1-0", "whole")
    for number in (1, 2):
        await assigning.device(f"n1-{number}", annotated="whole")

    await assigning.settle()
    await assigning.observe()

    assert await assigning.owners() == {"n1-0": "whole", "n1-1": "whole", "n1-2": None}
    assert await assigning.assigned("n1-2") == ("False", "MaxDevicesPerNode")
    capacity = assigning.cluster.allocation_state.index.state(PoolName("whole")).capacity()
    assert (capacity.total, capacity.available) == (2, 2)


async def test_unsupported_pool_touches_no_device(assigning):
    """Lesson 18."""
    assigning.verdicts[PoolName("whole")] = UNSUPPORTED
    await assigning.annotate("n1-0", "whole")

    await assigning.settle()

    assert await assigning.owners() == {"n1-0": None}
    assert await assigning.assigned() == ("False", "PoolUnsupported")


async def test_two_spellings_of_an_id_select_the_same_device(assigning):
    """Lesson 16."""
    await assigning.cluster.report("n1-0", pci={"vendor": "10DE", "device": "20B2"})
    await assigning.change_pool(
        "whole",
        deviceSelector={"include": {"pciVendors": ["10de"], "pciDevices": ["20b2"]}},
        assignment={"requireAnnotation": False},
    )

    await assigning.settle()

    assert await assigning.owners() == {"n1-0": "whole"}


async def test_deleted_pool_lets_go_of_its_devices(assigning):
    await assigning.annotate("n1-0", "whole")
    await assigning.settle()
    await assigning.client.delete(GPU_POOLS, "whole")

    await assigning.settle()

    assert await assigning.owners() == {"n1-0": None}
    assert await assigning.assigned() == ("False", "PoolNotFound")

"""Whether pods can go to every value of a label: what decides how strictly they may be spread."""

from collections.abc import Callable

import pytest

from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId, UnitId
from pool.index.device_index import DeviceIndex
from tests.support.builders import a_device, a_node, a_pool

POOL = PoolName("whole")


def an_index() -> DeviceIndex:
    index = DeviceIndex()
    index.replace_pool(a_pool())
    index.replace_node(a_node("n1", labels={"zone": "a"}))
    index.replace_device(a_device("n1"))
    return index


def test_a_pool_whose_nodes_all_have_the_key_is_labelled():
    assert an_index().can_spread(POOL, "zone")
    assert not an_index().can_spread(POOL, "rack")


def test_a_pool_without_nodes_is_not_labelled():
    assert not DeviceIndex().can_spread(POOL, "zone")


def test_a_node_that_does_not_exist_says_nothing():
    index = an_index()
    index.replace_device(a_device("gone"))

    assert index.can_spread(POOL, "zone")


def test_every_change_of_nodes_and_devices_is_seen():
    index = an_index()
    assert index.can_spread(POOL, "zone")

    index.replace_node(a_node("n2", labels={}))
    index.replace_device(a_device("n2"))
    assert not index.can_spread(POOL, "zone")

    index.replace_node(a_node("n2", labels={"zone": "b"}))
    assert index.can_spread(POOL, "zone")

    index.replace_node(a_node("n2", labels={}))
    assert not index.can_spread(POOL, "zone")

    index.discard_node(NodeName("n2"))
    assert index.can_spread(POOL, "zone")

    index.replace_node(a_node("n2", labels={}))
    assert not index.can_spread(POOL, "zone")

    index.discard_device(DeviceName("n2-0"))
    assert index.can_spread(POOL, "zone")


def two_zones() -> DeviceIndex:
    index = an_index()
    index.replace_node(a_node("n2", labels={"zone": "b"}))
    index.replace_device(a_device("n2"))
    assert index.can_spread(POOL, "zone")
    return index


def another_cordon(index: DeviceIndex, *, is_cordoned: bool) -> None:
    index.replace_node(a_node("n2", labels={"zone": "b"}, is_cordoned=is_cordoned))


def readiness(index: DeviceIndex, *, is_ready: bool) -> None:
    index.replace_node(a_node("n2", labels={"zone": "b"}, is_ready=is_ready))


def strangers(index: DeviceIndex, count: int) -> None:
    units = {("gpu.deckhouse.io/whole", NodeName("n2")): count} if count else {}
    index.set_unaccounted(PodUid("stranger"), units)


Step = Callable[[DeviceIndex], None]


@pytest.mark.parametrize(
    ("lose", "find"),
    [
        pytest.param(
            lambda index: another_cordon(index, is_cordoned=True),
            lambda index: another_cordon(index, is_cordoned=False),
            id="cordoned",
        ),
        pytest.param(
            lambda index: readiness(index, is_ready=False),
            lambda index: readiness(index, is_ready=True),
            id="not ready",
        ),
        pytest.param(
            lambda index: index.replace_device(a_device("n2", is_faulted=True)),
            lambda index: index.replace_device(a_device("n2")),
            id="its device faulted",
        ),
        pytest.param(
            lambda index: index.withhold(DeviceName("n2-0")),
            lambda index: index.readmit(DeviceName("n2-0")),
            id="its device leaves the pool",
        ),
        pytest.param(
            lambda index: index.replace_device(a_device("n2", uuid="")),
            lambda index: index.replace_device(a_device("n2")),
            id="its device without a UUID",
        ),
        pytest.param(
            lambda index: strangers(index, 1),
            lambda index: strangers(index, 0),
            id="closed by a pod on devices that nobody knows",
        ),
        pytest.param(
            lambda index: index.replace_pool(a_pool(is_in_maintenance=True)),
            lambda index: index.replace_pool(a_pool()),
            id="closed with its pool",
        ),
    ],
)
def test_zone_that_pods_cannot_go_to_is_no_zone_to_spread_over(lose: Step, find: Step):
    index = two_zones()

    lose(index)
    assert not index.can_spread(POOL, "zone")

    find(index)
    assert index.can_spread(POOL, "zone")


def test_zone_with_another_node_that_takes_pods_is_still_spread_over():
    index = two_zones()
    index.replace_node(a_node("n3", labels={"zone": "b"}))
    index.replace_device(a_device("n3"))

    another_cordon(index, is_cordoned=True)

    assert index.can_spread(POOL, "zone")


def test_full_zone_is_spread_over_since_its_units_come_free():
    index = two_zones()
    index.set_observed(PodUid("a"), (UnitId("GPU-n2-0"),))
    assert index.can_spread(POOL, "zone")

    index.set_assumed(ReservationId("b"), (UnitId("GPU-n1-0"),))
    assert index.can_spread(POOL, "zone")

"""The units of a container on one device: sizes, groups of containers, and the choice, against brute force."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import Strategy
from pool.demand import distinct_units
from pool.model import ContainerDemand, ContainerRole
from pool.placement import same_device
from pool.placement.topology import is_aligned, topology_of
from tests.support import naive_same_device, wirings

INIT, SIDECAR, MAIN = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.MAIN
SPREAD, BIN_PACK = Strategy.SPREAD, Strategy.BIN_PACK


def asked(*units: int, roles=()):
    return tuple(zip(roles or (MAIN,) * len(units), units, strict=True))


def plan(free, *units: int, slices: int = 10, roles=(), strategy=BIN_PACK, **options):
    groups = same_device.groups_of(asked(*units, roles=roles), slices)
    assert isinstance(groups, same_device.Groups)
    return same_device.plan_same_device(groups, free, strategy=strategy, **options)


@pytest.mark.parametrize(
    ("units", "nearest"),
    [
        pytest.param(0, (1,), id="nothing"),
        pytest.param(1, (1,), id="one"),
        pytest.param(23, (23,), id="a part of one device"),
        pytest.param(50, (50,), id="one device"),
        pytest.param(51, (50, 100), id="a device and a little"),
        pytest.param(120, (100, 150), id="between multiples"),
        pytest.param(150, (150,), id="several devices"),
    ],
)
def test_sizes_are_parts_of_a_device_or_whole_devices(units: int, nearest: tuple[int, ...]) -> None:
    assert same_device.nearest_sizes(units, 50) == nearest
    assert same_device.is_valid_size(units, 50) is (nearest == (units,))


def test_a_part_is_taken_where_the_least_is_left_over() -> None:
    assert plan([10, 6, 4, 9], 4) == (((2, 4),),)
    assert plan([10, 6, 3, 9], 4) == (((1, 4),),)


def test_spread_takes_a_part_where_the_most_is_left_over() -> None:
    assert plan([9, 10, 4], 4, strategy=SPREAD) == (((1, 4),),)


def test_of_equal_rests_the_preferred_device_is_taken() -> None:
    assert plan([6, 6, 6], 4, preference=(2, 0)) == (((2, 4),),)


def test_units_that_are_free_on_no_single_device_are_no_plan() -> None:
    assert plan([3, 3, 3], 4) is None


def test_a_multiple_is_so_many_idle_devices() -> None:
    assert plan([9, 10, 3, 10], 20) == (((1, 10), (3, 10)),)
    assert plan([9, 10, 3, 9], 20) is None


def test_whole_devices_are_the_best_set_of_idle_ones() -> None:
    topology = topology_of(wirings.a100_pcie())
    free = [10, 7, 10, 10, 7, 10, 10, 7]
    assert plan(free, 20, topology=topology) == (((2, 10), (3, 10)),)


def test_containers_get_parts_of_their_own() -> None:
    assert plan([10, 5], 6, 5) == (((0, 6),), ((1, 5),))
    assert sorted(plan([10, 4], 6, 4, 4)) == [((0, 4),), ((0, 6),), ((1, 4),)]
    assert plan([10, 4], 6, 5) is None


def test_a_fit_that_best_fit_misses_is_found() -> None:
    """Best fit puts 5 on the first, and 4 on the second: nowhere are 3 left."""
    assert plan([7, 8], 5, 4, 3, 3) == (((1, 5),), ((0, 4),), ((0, 3),), ((1, 3),))


def test_a_container_reuses_the_part_of_an_init_container() -> None:
    assert plan([10], 6, 4, roles=(INIT, MAIN)) == (((0, 6),), ())
    assert plan([6, 10], 4, 6, roles=(INIT, MAIN)) == (((0, 4),), ((0, 2),))


def test_a_device_of_an_init_container_has_room_for_the_larger_container_after_it() -> None:
    assert plan([4, 10], 4, 6, roles=(INIT, MAIN)) == (((1, 4),), ((1, 2),))


def test_an_init_container_s_part_becomes_one_of_whole_devices() -> None:
    assert plan([9, 10, 10], 3, 20, roles=(INIT, MAIN)) == (((1, 3),), ((1, 7), (2, 10)))


@pytest.mark.parametrize(
    ("containers", "index"),
    [
        pytest.param(asked(4, 15), 1, id="no multiple"),
        pytest.param(
            asked(20, 10, roles=(INIT, MAIN)), 1, id="kubelet would choose among two devices"
        ),
        pytest.param(
            asked(8, 5, 9, roles=(INIT, SIDECAR, MAIN)),
            2,
            id="3 handed on, and 6 more than the device has",
        ),
        pytest.param(
            asked(8, 5, 20, roles=(INIT, SIDECAR, MAIN)),
            2,
            id="another container keeps a part of the device",
        ),
    ],
)
def test_some_pods_can_never_be_served(containers, index: int) -> None:
    assert same_device.groups_of(containers, 10) == same_device.Unservable(index)


def test_containers_that_share_units_are_one_group() -> None:
    containers = asked(6, 2, 20, 3, 4, 4, roles=(INIT, SIDECAR, MAIN, MAIN, MAIN, MAIN))
    assert same_device.groups_of(containers, 10) == same_device.Unservable(2)
    containers = asked(6, 2, 5, 20, 4, roles=(INIT, SIDECAR, MAIN, MAIN, MAIN))
    found = same_device.groups_of(containers, 10)
    assert found == same_device.Groups(
        10,
        (same_device.Group(7, 0), same_device.Group(20, 2), same_device.Group(4, 0)),
        ((0, 6), (0, 0), (0, 1), (1, 20), (2, 4)),
    )


def test_a_pod_is_placed_on_one_device_before_an_aligned_set() -> None:
    topology = topology_of(wirings.a100_pcie())
    free = [4, 0, 0, 0, 9, 0, 0, 6]
    assert plan(free, 4, 4, topology=topology) == (((4, 4),), ((4, 4),))


def test_a_pod_is_placed_on_an_aligned_set_before_any_other() -> None:
    topology = topology_of(wirings.a100_pcie())
    free = [4, 0, 0, 0, 4, 0, 0, 6]
    assert plan(free, 4, 4, topology=topology) == (((4, 4),), ((7, 4),))
    assert plan(free, 4, 6, topology=topology) == (((4, 4),), ((7, 6),))


def test_only_an_aligned_set_is_given_where_it_is_required() -> None:
    topology = topology_of(wirings.a100_pcie())
    free = [4, 0, 0, 0, 4, 0, 0, 0]
    assert plan(free, 4, 4, topology=topology) is not None
    assert plan(free, 4, 4, topology=topology, aligned_only=True) is None
    assert plan(free, 4, topology=topology, aligned_only=True) is not None
    assert plan(free, 2, 2, topology=topology_of(wirings.unknown()), aligned_only=True) is not None


def test_spread_places_containers_on_several_devices_of_an_aligned_set() -> None:
    topology = topology_of(wirings.a100_pcie())
    assert plan([10] * 8, 4, 4, topology=topology, strategy=SPREAD) == (((0, 4),), ((1, 4),))


def test_beyond_the_exact_search_the_best_fit_is_the_answer() -> None:
    free = [10, 10, 10, 10]
    found = plan(free, *[4] * 9)
    assert found is None
    assert plan([*free, 4], *[4] * 9) is not None


ROLES = st.sampled_from([INIT, SIDECAR, MAIN])
SLICES = 4


@given(
    st.lists(st.tuples(ROLES, st.sampled_from([1, 2, 3, 4, 8])), min_size=1, max_size=3),
    st.lists(st.integers(0, SLICES), min_size=1, max_size=4),
    st.sampled_from([BIN_PACK, SPREAD]),
    st.booleans(),
)
def test_a_plan_is_found_if_there_is_one_and_is_what_kubelet_allows(
    containers, free, strategy, prefer
) -> None:
    containers = sorted(containers, key=lambda container: container[0] is MAIN)
    groups = same_device.groups_of(tuple(containers), SLICES)
    expected = naive_same_device.serves(tuple(containers), tuple(free), SLICES)
    if isinstance(groups, same_device.Unservable):
        assert not naive_same_device.serves(tuple(containers), (SLICES,) * 6, SLICES)
        return
    topology = topology_of(wirings.h100(4)[: len(free)]) if prefer else None
    found = same_device.plan_same_device(groups, free, strategy=strategy, topology=topology)
    assert (found is not None) is expected
    if found is not None:
        check(containers, free, found)


def check(containers, free: list[int], found) -> None:
    """Follow a plan as kubelet carries it out."""
    remaining = list(free)
    handed_on: list[int] = []
    for (role, units), taken in zip(containers, found, strict=True):
        fresh = [at for at, count in taken for _ in range(count)]
        for at in fresh:
            remaining[at] -= 1
        has = [*handed_on[:units], *fresh]
        assert len(has) == units
        assert naive_same_device.is_valid(tuple(has), SLICES)
        handed_on = [*handed_on, *fresh] if role is INIT else handed_on[units:]
    assert min(remaining) >= 0
    demand = [ContainerDemand("c", role, units) for role, units in containers]
    assert sum(free) - sum(remaining) == distinct_units(demand)


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, SLICES), min_size=8, max_size=8),
)
def test_a_required_plan_is_found_if_there_is_one(units, free) -> None:
    topology = topology_of(wirings.a100_pcie())
    found = plan(free, *units, slices=SLICES, topology=topology, aligned_only=True)
    expected = any(
        is_aligned(topology, sum({1 << at for at in where}))
        and all(
            free[at] >= sum(n for n, here in zip(units, where, strict=True) if here == at)
            for at in where
        )
        for where in itertools.product(range(8), repeat=len(units))
    )
    assert (found is not None) is expected
    if found is not None:
        assert is_aligned(topology, sum({1 << at for taken in found for at, _ in taken}))

"""What a placement costs of a node's value, for pools of whole devices, slices and fractions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import SlicePlacement
from pool.placement.fragmentation.placement_costs import (
    INSUFFICIENT,
    PlacementCosts,
    RemainingCapacity,
    free_after,
    usual_workload,
)
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from pool.placement.unit_request import UnitRequest
from tests.support.builders import a_pool, a_slice_pool

WHOLE = a_pool()
FRACTIONS = a_slice_pool(slices=50, slice_placement=SlicePlacement.SAME_DEVICE)


def costs(*shapes: tuple[TargetShape, float], pool=WHOLE) -> PlacementCosts:
    return PlacementCosts(pool, TargetWorkload(shapes))


def cost(
    found: PlacementCosts,
    units: int,
    *remaining: int,
    cpu: int | None = None,
    memory: int | None = None,
) -> int:
    return found.of(RemainingCapacity(remaining, cpu, memory), found.shape(UnitRequest(units)))


@pytest.mark.parametrize(
    ("remaining", "shape", "expected"),
    [
        pytest.param((0, 1000, 1000), TargetShape(0, 1000, 1), (0, 0, 1000), id="one device"),
        pytest.param((0, 1000, 1000), TargetShape(0, 1000, 2), (0, 0, 0), id="two devices"),
        pytest.param((250, 500, 1000), TargetShape(0, 250, 2), (0, 250, 1000), id="slices"),
        pytest.param((0, 500, 500), TargetShape(0, 250, 3), (0, 0, 250), id="more than devices"),
        pytest.param((100, 500, 1000), TargetShape(0, 460, 1), (40, 100, 1000), id="a fraction"),
        pytest.param((100, 200), TargetShape(0, 460, 1), (100, 200), id="nowhere"),
    ],
)
def test_devices_that_are_fullest_and_suffice_are_taken(remaining, shape, expected):
    assert free_after(remaining, shape) == expected


def test_the_last_room_for_a_large_pod_costs_most():
    found = costs((TargetShape(0, 1000, 1), 9), (TargetShape(0, 1000, 4), 1))
    empty = (1000,) * 4
    assert cost(found, 1, *empty) > cost(found, 1, 0, 1000, 1000, 1000)
    assert cost(found, 4, *empty) >= cost(found, 1, *empty)


def test_a_rest_that_other_pods_would_fill_better_costs_more():
    found = costs((TargetShape(0, 460, 1), 2), (TargetShape(0, 260, 1), 1), pool=FRACTIONS)
    assert cost(found, 23, 500) < cost(found, 23, 720) < cost(found, 23, 540)


def test_a_node_without_the_cpu_is_the_last_resort():
    found = costs((TargetShape(16_000, 1000, 1), 1))
    assert cost(found, 1, *(1000,) * 8, cpu=15_999) > INSUFFICIENT
    assert cost(found, 1, 1000, cpu=16_000) < INSUFFICIENT


def test_a_node_without_the_memory_is_the_last_resort():
    found = costs((TargetShape(1_000, 1000, 1, memory_mib=64), 1))
    assert cost(found, 1, *(1000,) * 8, cpu=16_000, memory=63) > INSUFFICIENT
    assert cost(found, 1, 1000, cpu=16_000, memory=64) < INSUFFICIENT
    assert cost(found, 1, 1000, memory=64) < INSUFFICIENT
    lost = found.lost(RemainingCapacity((1000,), 16_000, 63), found.shape(UnitRequest(1)))
    assert lost < INSUFFICIENT, "a loss is one of the value alone"


def test_the_cpu_and_memory_of_a_size_are_the_means_of_its_pods():
    found = costs(
        (TargetShape(2_000, 1000, 1, memory_mib=100), 3),
        (TargetShape(6_000, 1000, 1, memory_mib=500), 1),
    )
    assert found.shape(UnitRequest(1)) == TargetShape(3_000, 1000, 1, memory_mib=200)
    assert found.shape(UnitRequest(2)) == TargetShape(0, 1000, 2), "nothing is known of that size"


def test_sizes_are_the_usual_ones_before_a_pool_has_pods():
    sizes = {(item.milli, item.devices) for item, _ in usual_workload(WHOLE).shapes}
    assert sizes == {(1000, 1), (1000, 2), (1000, 4), (1000, 8)}
    sizes = {(item.milli, item.devices) for item, _ in usual_workload(FRACTIONS).shapes}
    assert sizes == {(120, 1), (240, 1), (500, 1), (1000, 1)}


def test_room_for_large_pods_costs_more_when_it_is_scarce():
    found = costs((TargetShape(0, 1000, 1), 1), (TargetShape(0, 1000, 8), 1))
    empty = (1000,) * 8
    assert found.pod_counts(RemainingCapacity(empty, None)) == (1,)
    assert found.pod_counts(RemainingCapacity(empty, 0, 0)) == (1,)
    assert found.reprice(800_000, [100])
    plenty = cost(found, 1, *empty)
    assert not found.reprice(800_000, [100])
    assert found.reprice(800_000, [5])
    assert cost(found, 1, *empty) > plenty


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 50))
def test_costs_are_those_of_the_states_before_and_after(free, units):
    """Without CPU and large pods the cost is what the device's expected fill loses."""
    found = costs((TargetShape(0, 460, 1), 2), (TargetShape(0, 260, 1), 1), pool=FRACTIONS)
    left = tuple(sorted(20 * count for count in free))
    fitting = [remaining for remaining in left if remaining >= 20 * units]
    if not fitting:
        return
    fill = found._value.fill
    expected = (fill[fitting[0]] - fill[fitting[0] - 20 * units]) / 10
    assert cost(found, units, *left) == pytest.approx(expected, abs=0.51)

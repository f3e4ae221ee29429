"""What a node will still take in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.placement.fragmentation.capacity_weights import CapacityWeights
from pool.placement.fragmentation.node_value import NodeValue, expected_fill
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload

HALVES = TargetWorkload.of([TargetShape(4000, 500, 1)])
WHOLE = TargetShape(10_000, 1000, 1)
SHARE = TargetShape(5_000, 400, 1)
LARGE = TargetShape(80_000, 1000, 8)


def test_a_rest_is_worth_what_the_pods_that_fit_will_take_of_it() -> None:
    fill = expected_fill(HALVES.shapes)
    assert [fill[remaining] for remaining in (0, 490, 500, 990, 1000)] == pytest.approx(
        [0, 0, 500, 500, 1000], abs=1e-6
    )


def test_a_hole_that_only_a_few_small_pods_fit_into_is_worth_nothing() -> None:
    small, usual = TargetShape(0, 100, 1), TargetShape(0, 500, 1)
    few, many = ([(small, count), (usual, 100)] for count in (5, 50))
    assert [expected_fill(few)[remaining] for remaining in (100, 499, 500)] == pytest.approx(
        [0, 0, 500]
    )
    assert expected_fill(many)[100] > 0


def test_without_a_target_a_rest_is_worth_itself() -> None:
    value = NodeValue(TargetWorkload(), "a")
    assert value.of_state([1000, 250], 0) == 1250
    assert value.of_state([], None) == 0


@given(
    st.dictionaries(
        st.integers(1, 100).map(lambda part: part * 10), st.integers(1, 9), min_size=1, max_size=6
    )
)
def test_more_free_milli_of_one_size_are_never_worth_more_than_they_are(weights):
    fill = expected_fill([(TargetShape(0, size, 1), n) for size, n in weights.items()])
    assert len(fill) == 1001
    assert all(0 <= value <= remaining + 1e-6 for remaining, value in enumerate(fill))
    assert fill[0] == 0
    assert fill[max(weights)] > 0


def test_a_device_whose_units_do_not_make_up_1000_milli_is_whole_with_those_it_has() -> None:
    value = NodeValue(TargetWorkload.of([WHOLE]), "a", whole=960)
    assert len(value.fill) == 961
    assert value.fill[960] == pytest.approx(960)
    assert value.fill[959] == 0


def test_devices_for_which_cpu_will_run_out_are_worth_nothing() -> None:
    value = NodeValue(TargetWorkload.of([WHOLE, SHARE]), "a")
    values = [value.of_state([1000] * 4, cpu) for cpu in (0, 10_000, 40_000, 1_000_000)]
    assert values[0] == pytest.approx(0, abs=1)
    assert all(less < more for less, more in pairwise(values))
    assert values[-1] == pytest.approx(value.of_state([1000] * 4, None))


def test_the_scarcer_of_cpu_and_memory_decides() -> None:
    shape = TargetShape(10_000, 1000, 1, memory_mib=1000)
    value = NodeValue(TargetWorkload.of([shape]), "a")
    remaining = [1000] * 8
    by_cpu, by_memory = value.of_state(remaining, 20_000), value.of_state(remaining, None, 3000)
    assert by_cpu == pytest.approx(2000)
    assert by_memory == pytest.approx(3000)
    assert value.of_state(remaining, 20_000, 3000) == by_cpu
    assert value.of_state(remaining, 80_000, 3000) == pytest.approx(by_memory, abs=1)
    without = NodeValue(TargetWorkload.of([WHOLE]), "a")
    assert without.of_state(remaining, None, 0) == 8000, "no pod asks for memory"


def test_room_for_large_pods_ends_with_the_memory() -> None:
    target = TargetWorkload.of([TargetShape(1000, 1000, 2, memory_mib=100)])
    prices = CapacityWeights(target)
    assert prices.pod_counts("a", 8, 8_000, memory_mib=None) == (4,)
    assert prices.pod_counts("a", 8, 8_000, memory_mib=399) == (3,)
    assert prices.pod_counts("a", 8, 2_000, memory_mib=399) == (2,)
    value = NodeValue(target, "a", prices)
    pod_counts = [value.of(0, 8, 8_000, memory_mib=memory) for memory in (400, 399, 99)]
    assert pod_counts == [4 * prices.shapes[0].price, 3 * prices.shapes[0].price, 0]


def test_idle_devices_together_are_worth_more_than_apart_if_pods_ask_for_several() -> None:
    target = TargetWorkload.of([LARGE, *[WHOLE] * 20])
    value = NodeValue(target, "a")
    fill = value.fill[1000]
    assert value.of_state([1000] * 8, None) > 8 * fill
    assert value.of_state([1000] * 7, None) == pytest.approx(7 * fill)
    enough, too_little = value.of_state([1000] * 8, 80_000), value.of_state([1000] * 8, 79_999)
    assert enough - too_little > 1


def test_models_that_large_pods_do_not_take_have_no_room_for_them() -> None:
    picky = TargetShape(0, 1000, 8, ("b",))
    value = NodeValue(TargetWorkload.of([picky, WHOLE]), "a")
    assert value.of_state([1000] * 8, None) == pytest.approx(8 * value.fill[1000])
    prices = CapacityWeights(TargetWorkload.of([picky]))
    assert prices.pod_counts("a", 16, None) == (0,)
    assert prices.pod_counts("b", 16, None) == (2,)


def test_room_becomes_dearer_as_it_becomes_rare() -> None:
    prices = CapacityWeights(TargetWorkload.of([LARGE, *[WHOLE] * 20]))
    seen = []
    for pod_counts in (500, 100, 20, 0):
        assert prices.observe(4_000_000, [pod_counts]) == [0]
        seen.append(prices.shapes[0].price)
    assert seen == sorted(seen)
    assert prices.observe(4_000_000, [0]) == []


def test_a_price_stays_while_scarcity_moves_little() -> None:
    prices = CapacityWeights(TargetWorkload.of([LARGE, WHOLE]))
    prices.observe(1_000_000, [100])
    assert prices.observe(1_000_000, [60]) == []
    assert prices.observe(1_000_000, [49]) == [0]


def test_a_pool_without_demand_has_no_prices() -> None:
    assert CapacityWeights(TargetWorkload()).shapes == []
    assert CapacityWeights(TargetWorkload.of([TargetShape(1000, 0, 0)])).observe(1000, []) == []

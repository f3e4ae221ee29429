"""The recent demand of a pool: recent pods count most, and the order of observation does not count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import AllocationMode, SlicePlacement
from pool.compute_resources import ComputeResources
from pool.model import ContainerRole
from pool.placement.fragmentation.recent_demand import (
    MAX_SHAPES,
    RecentDemand,
    RecentDemands,
    RequestedShape,
    target_shape,
)
from pool.placement.fragmentation.target_workload import TargetShape
from pool.placement.unit_request import UnitRequest
from tests.support.builders import a_pod_facts, a_pool, a_slice_pool

DAY = 24 * 3600.0
POOL = a_pool()


def asks(units: int, cpu_milli: int = 0) -> RequestedShape:
    return RequestedShape(
        UnitRequest(units, ((ContainerRole.MAIN, units),)), ComputeResources(cpu_milli)
    )


def weights(demand: RecentDemand) -> dict[int, float]:
    """Devices -> share."""
    return {shape.devices: weight for shape, weight in demand.workload(POOL).shapes}


def test_a_pod_of_yesterday_counts_half():
    demand = RecentDemand()
    demand.observe(asks(1), 0.0)
    demand.observe(asks(8), DAY)
    assert weights(demand) == pytest.approx({1: 1 / 3, 8: 2 / 3})


observed = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 8]), st.floats(0, 400 * DAY)), min_size=1, max_size=30
)


@given(observed, st.randoms())
def test_the_order_of_observation_makes_no_difference(pods, random):
    demand, shuffled = RecentDemand(DAY), RecentDemand(DAY)
    newest = max(created for _, created in pods)
    expected: dict[int, float] = {}
    for units, created in pods:
        demand.observe(asks(units), created)
        expected[units] = expected.get(units, 0.0) + 2 ** ((created - newest) / DAY)
    random.shuffle(pods)
    for units, created in pods:
        shuffled.observe(asks(units), created)
    total = sum(expected.values())
    shares = {units: weight / total for units, weight in expected.items()}
    assert weights(demand) == pytest.approx(shares, abs=1e-9)
    assert weights(shuffled) == pytest.approx(shares, abs=1e-9)


def test_after_years_only_what_is_recent_counts():
    demand = RecentDemand(half_life_s=1.0)
    demand.observe(asks(1), 0.0)
    for created in (600.0, 1e9, 2e9):
        demand.observe(asks(8), created)
    assert weights(demand)[8] == pytest.approx(1.0)


def test_shapes_are_bounded_and_the_lightest_go():
    demand = RecentDemand()
    for _ in range(10):
        demand.observe(asks(3), 0.0)
    for number in range(10 * MAX_SHAPES):
        demand.observe(asks(1, cpu_milli=number), 0.0)
    assert len(demand.workload(POOL).shapes) <= 2 * MAX_SHAPES
    (most, _) = demand.workload(POOL).shapes[0]
    assert most == TargetShape(0, 1000, 3)


def test_the_workload_is_derived_again_when_much_of_it_is_new():
    demand = RecentDemand()
    for _ in range(64):
        demand.observe(asks(1), 0.0)
    before = demand.workload(POOL)
    demand.observe(asks(2), 0.0)
    assert demand.workload(POOL) is before
    for _ in range(4):
        demand.observe(asks(2), 0.0)
    assert weights(demand) == pytest.approx({1: 64 / 69, 2: 5 / 69})


def test_a_pool_that_is_divided_again_has_its_demand_measured_again():
    demand = RecentDemand()
    demand.observe(asks(2), 0.0)
    assert demand.workload(a_slice_pool(slices=4)).shapes == ((TargetShape(0, 250, 2), 1.0),)
    assert demand.workload(a_slice_pool(slices=2)).shapes == ((TargetShape(0, 500, 2), 1.0),)


FRACTIONS = a_slice_pool(slices=50, slice_placement=SlicePlacement.SAME_DEVICE)


@pytest.mark.parametrize(
    ("pool", "asked", "expected"),
    [
        pytest.param(a_pool(), asks(4, 500), TargetShape(500, 1000, 4), id="whole devices"),
        pytest.param(a_slice_pool(slices=3), asks(2), TargetShape(0, 333, 2), id="slices"),
        pytest.param(FRACTIONS, asks(23), TargetShape(0, 460, 1), id="a fraction"),
        pytest.param(FRACTIONS, asks(150), TargetShape(0, 1000, 3), id="three devices"),
        pytest.param(
            FRACTIONS,
            RequestedShape(UnitRequest(30, ((ContainerRole.MAIN, 20), (ContainerRole.MAIN, 10)))),
            TargetShape(0, 400, 2),
            id="two fractions",
        ),
        pytest.param(
            a_pool(mode=AllocationMode.MIG, mig_profile="2g.20gb"),
            asks(1),
            TargetShape(0, 333, 1),
            id="an instance",
        ),
    ],
)
def test_units_are_measured_in_devices(pool, asked, expected):
    assert target_shape(pool, asked) == expected


def test_pods_count_for_the_resource_that_they_ask_for():
    demands = RecentDemands()
    created = "2026-01-01T00:00:00Z"
    pod = a_pod_facts(units=2, created=created, requests=ComputeResources(700, 50))
    demands.observe(pod)
    assert demands.of(POOL).shapes == ((TargetShape(700, 1000, 2, memory_mib=50), 1.0),)
    assert demands.of(a_pool("other")).shapes == ()
    demands.forget(POOL.resource)
    assert demands.of(POOL).shapes == ()


@pytest.mark.parametrize("created", ["", "yesterday", "2026-01-01T00:00:00"])
def test_a_pod_of_unknown_age_does_not_count(created):
    demands = RecentDemands()
    demands.observe(a_pod_facts(created=created))
    assert demands.of(POOL).shapes == ()


def test_a_pool_without_pods_has_the_demand_that_is_usual_there():
    demands = RecentDemands(usual={"whole": [(asks(8), 1.0), (asks(1), 3.0)], "": [(asks(2), 1.0)]})
    assert demands.of(POOL).shapes == (
        (TargetShape(0, 1000, 1), 0.75),
        (TargetShape(0, 1000, 8), 0.25),
    )
    assert demands.of(a_pool("other")).shapes == ((TargetShape(0, 1000, 2), 1.0),)
    demands.observe(a_pod_facts(units=4, created="2026-01-01T00:00:00Z"))
    assert demands.of(POOL).shapes == ((TargetShape(0, 1000, 4), 1.0),)

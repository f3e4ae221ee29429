"""Strategy LeastFragmentation by the value of nodes: the order is kept up to date node by node."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from api.kinds.gpupool import SlicePlacement, Strategy
from api.names import NodeName, PodUid, PoolName, UnitId
from pool.index.device_index import DeviceIndex
from pool.model import PodPhase, PoolFacts
from pool.placement.fragmentation.placement_costs import PlacementCosts
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from pool.placement.planner import Placed
from pool.value_ranking import rank_nodes
from tests.support.allocation_state import commit_to, plan_reservation, some_allocation_state
from tests.support.builders import (
    a_demand,
    a_device,
    a_node,
    a_pod_facts,
    a_pool,
    a_slice_pool,
    at,
)

WHOLE = a_pool()
ONES = TargetWorkload(((TargetShape(0, 1000, 1), 8.0), (TargetShape(0, 1000, 4), 1.0)))


def an_index(pool: PoolFacts = WHOLE, **devices: int) -> DeviceIndex:
    index = DeviceIndex()
    index.replace_pool(pool)
    for node, count in devices.items():
        index.replace_node(a_node(node, cpu_milli=64_000))
        for number in range(count):
            index.replace_device(a_device(node, number, pool.name))
    return index


def ranked(index: DeviceIndex, target: TargetWorkload = ONES, pool: PoolFacts = WHOLE) -> None:
    index.rank(PlacementCosts(pool, target))


def take(index: DeviceIndex, node: str, *numbers: int | str) -> None:
    units = tuple(UnitId(f"GPU-{node}-{number}") for number in numbers)
    index.set_observed(PodUid(f"on-{node}"), units)


def best(index: DeviceIndex, units: int = 1, pool: str = "whole") -> str | None:
    state = index.state(PoolName(pool))
    return state.best_node(state.request_of(a_demand(units, pool=pool)), lambda _: True)


def test_a_small_pod_leaves_room_for_a_large_one():
    """The free units alone say n1, which is the last node with four devices on it."""
    index = an_index(n1=4, n2=8)
    take(index, "n2", 0, 1, 2)
    assert best(index) == "n1"
    ranked(index)
    assert best(index) == "n2"
    assert best(index, 4) == "n1"


def test_a_copy_of_the_state_is_ranked_at_once():
    index = an_index(n1=4, n2=8)
    take(index, "n2", 0, 1, 2)
    index.replace_pool(a_pool("packed", strategy=Strategy.BIN_PACK))
    rank_nodes(index)
    assert best(index) == "n2"
    assert index.state(PoolName("packed")).ranking is None


def test_where_values_are_equal_the_fewest_units_are_left():
    index = an_index(n1=3, n2=2, n3=2)
    ranked(index)
    assert best(index) == "n2"


def test_a_node_that_changed_is_put_into_its_place():
    index = an_index(n1=2, n2=3)
    ranked(index)
    assert best(index) == "n1"
    take(index, "n1", 0, 1)
    assert best(index) == "n2"
    take(index, "n1")
    assert best(index) == "n1"
    index.replace_node(a_node("n1", is_cordoned=True))
    assert best(index) == "n2"
    index.replace_device(a_device("n0"))
    index.replace_node(a_node("n0"))
    assert best(index) == "n0"
    index.discard_device(a_device("n0").name)
    assert best(index) == "n2"


def test_costs_of_a_pool_that_changed_meanwhile_do_not_count():
    index = an_index(n1=2)
    other = dataclasses.replace(WHOLE, strategy=Strategy.BIN_PACK)
    ranked(index, pool=other)
    assert index.state(WHOLE.name).ranking is None
    ranked(index)
    assert index.state(WHOLE.name).ranking is not None
    index.replace_pool(other)
    assert index.state(WHOLE.name).ranking is None
    index.rank(PlacementCosts(a_pool("gone"), ONES))


def test_pods_that_ask_for_cpu_go_where_enough_is_left():
    """Each pod asks for a quarter of a node's CPU, so that a node with 8 devices can fill 4."""
    target = TargetWorkload(((TargetShape(16_000, 1000, 1), 1.0),))
    allocation_state = some_allocation_state(devices=[], nodes=())
    index = allocation_state.index
    for node in ("n1", "n2"):
        index.replace_node(a_node(node, cpu_milli=64_000))
        for number in range(8):
            index.replace_device(a_device(node, number))
    ranked(index, target)
    seen: list[str] = []
    for number in range(8):
        placed = plan_reservation(allocation_state, a_demand(1))
        assert isinstance(placed, Placed)
        pod = a_pod_facts(f"p{number}", 1, cpu_milli=16_000)
        allocation_state.observe_pod(pod, at(0))
        commit_to(allocation_state, pod, node=placed.node)
        seen.append(placed.node)
    assert (seen.count("n1"), seen.count("n2")) == (4, 4)
    assert index.free_cpu(NodeName("n1")) == index.free_cpu(NodeName("n2")) == 0
    assert index.free_cpu(NodeName("n3")) is None


def test_cpu_is_that_of_pods_with_units_for_as_long_as_they_have_them():
    allocation_state = some_allocation_state(
        devices=[a_device("n1")], nodes=[a_node("n1", cpu_milli=64_000)]
    )
    node = NodeName("n1")
    pending = a_pod_facts("p", 1, cpu_milli=4_000)
    allocation_state.observe_pod(pending, at(0))
    assert allocation_state.index.free_cpu(node) == 64_000
    bound = dataclasses.replace(
        pending, phase=PodPhase.BOUND, node=node, devices={"c0": (UnitId("GPU-n1-0"),)}
    )
    allocation_state.observe_pod(bound, at(1))
    assert allocation_state.index.free_cpu(node) == 60_000
    allocation_state.observe_pod(dataclasses.replace(bound, cpu_milli=8_000), at(2))
    assert allocation_state.index.free_cpu(node) == 56_000, "it was resized in place"
    allocation_state.observe_pod(dataclasses.replace(bound, phase=PodPhase.ENDED), at(3))
    assert allocation_state.index.free_cpu(node) == 64_000


FRACTIONS = a_slice_pool(
    "slices",
    slices=10,
    slice_placement=SlicePlacement.SAME_DEVICE,
    strategy=Strategy.LEAST_FRAGMENTATION,
)
PARTS = TargetWorkload(((TargetShape(4_000, 700, 1), 2.0), (TargetShape(2_000, 300, 1), 1.0)))
changes = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.sets(st.integers(0, 19)), st.integers(1, 12)),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(changes)
def test_the_order_is_that_of_an_index_that_is_read_once(steps):
    others = {f"o{number}": 1 for number in range(24)}
    index = an_index(FRACTIONS, n1=2, n2=2, n3=1, **others)
    for other in others:
        take(index, other, *(f"0::{slot}" for slot in range(10 - int(other[1:]) % 9)))
    ranked(index, PARTS, FRACTIONS)
    state = index.state(FRACTIONS.name)
    for node, slots, units in steps:
        taken = tuple(
            UnitId(f"GPU-{node}-{slot // 10}::{slot % 10}")
            for slot in sorted(slots)
            if node != "n3" or slot < 10
        )
        index.set_observed(PodUid(f"on-{node}"), taken)
        index.set_cpu(PodUid(f"on-{node}"), NodeName(node), 1_000 * len(taken))
        request = state.request_of(a_demand(units, pool="slices"))
        assert state.ranking is not None
        state.nodes()
        kept = list(state.ranking.order(request, state.nodes()))
        ranked(index, PARTS, FRACTIONS)
        fresh = index.state(FRACTIONS.name).ranking
        assert fresh is not None
        assert kept == list(fresh.order(request, state.nodes()))
        found = best(index, units, "slices")
        fits = index.view(FRACTIONS.name, a_demand(units, pool="slices")).refusals
        assert (found is None) == all(refusal is not None for refusal in fits.values())

"""Strategy LeastFragmentation by the value of nodes: the order is kept up to date node by node."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import SlicePlacement, Strategy
from api.names import NodeName, PodUid, PoolName, UnitId
from pool.compute_resources import NOTHING, ComputeResources
from pool.index.device_index import DeviceIndex
from pool.model import PodPhase, PoolFacts, UnitlessPod
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
        pod = a_pod_facts(f"p{number}", 1, requests=ComputeResources(16_000))
        allocation_state.observe_pod(pod, at(0))
        commit_to(allocation_state, pod, node=placed.node)
        seen.append(placed.node)
    assert (seen.count("n1"), seen.count("n2")) == (4, 4)
    assert [free(index, node) for node in ("n1", "n2")] == [(0, None)] * 2
    assert free(index, "n3") == (None, None)


def free(index: DeviceIndex, node: str) -> tuple[int | None, int | None]:
    return index.free_cpu_and_memory(NodeName(node))


GIB = 1024


def test_devices_without_memory_go_to_pods_that_ask_for_little():
    """Pods of one device ask for 128 GiB, pods of two for 8; n2 has the memory for two of the former."""
    target = TargetWorkload(
        (
            (TargetShape(1_000, 1000, 1, memory_mib=128 * GIB), 1.0),
            (TargetShape(1_000, 1000, 2, memory_mib=8 * GIB), 1.0),
        )
    )
    index = an_index(n1=8, n2=8)
    for node in ("n1", "n2"):
        index.replace_node(a_node(node, cpu_milli=64_000, memory_mib=2048 * GIB))
    ranked(index, target)
    assert (best(index, 1), best(index, 2)) == ("n1", "n1")
    index.set_requests(PodUid("cache"), NodeName("n2"), ComputeResources(0, 1792 * GIB))
    assert (best(index, 1), best(index, 2)) == ("n1", "n2")
    index.set_requests(PodUid("cache"), NodeName("n2"), ComputeResources(0, 2047 * GIB))
    assert (best(index, 1), best(index, 2)) == ("n1", "n1"), "not enough for either"


def test_a_node_whose_pods_request_more_than_it_has_is_ranked_as_one_with_nothing_left():
    """Kubelet reserved more for the system after the pods were bound."""
    target = TargetWorkload(((TargetShape(0, 1000, 2, memory_mib=0), 1.0),))
    index = an_index(n1=4, n2=4)
    for node in ("n1", "n2"):
        index.replace_node(a_node(node, cpu_milli=12_000, memory_mib=GIB))
    index.set_requests(PodUid("busy"), NodeName("n1"), ComputeResources(60_000, 2 * GIB))
    ranked(index, target)
    remaining = index.state(WHOLE.name).nodes()[NodeName("n1")].remaining
    assert remaining is not None
    assert (remaining.cpu_milli, remaining.memory_mib) == (0, 0)
    assert free(index, "n1") == (0, 0)
    assert best(index, 2) in {"n1", "n2"}


def test_a_pod_without_units_takes_cpu_and_memory_of_its_node():
    allocation_state = some_allocation_state(
        devices=[a_device("n1")], nodes=[a_node("n1", cpu_milli=64_000, memory_mib=1000)]
    )
    pod = UnitlessPod(PodUid("u"), NodeName("n1"), ComputeResources(3_000, 100))
    for _ in range(2):
        allocation_state.observe_unitless(pod)
        assert free(allocation_state.index, "n1") == (61_000, 900)
    assert allocation_state.reader.unitless_pods() == ["u"]
    allocation_state.observe_unitless(UnitlessPod(pod.uid, pod.node, NOTHING))
    assert free(allocation_state.index, "n1") == (64_000, 1000)
    allocation_state.observe_unitless(pod)
    allocation_state.discard_unitless(pod.uid)
    allocation_state.discard_unitless(pod.uid)
    assert free(allocation_state.index, "n1") == (64_000, 1000)
    assert allocation_state.reader.unitless_pods() == []


def test_a_pod_with_units_requests_for_as_long_as_it_has_them():
    allocation_state = some_allocation_state(
        devices=[a_device("n1")], nodes=[a_node("n1", cpu_milli=64_000, memory_mib=2048)]
    )
    index = allocation_state.index
    node = NodeName("n1")
    pending = a_pod_facts("p", 1, requests=ComputeResources(4_000, 1024))
    allocation_state.observe_pod(pending, at(0))
    assert free(index, "n1") == (64_000, 2048)
    bound = dataclasses.replace(
        pending, phase=PodPhase.BOUND, node=node, devices={"c0": (UnitId("GPU-n1-0"),)}
    )
    allocation_state.observe_pod(bound, at(1))
    assert free(index, "n1") == (60_000, 1024)
    allocation_state.observe_pod(
        dataclasses.replace(bound, requests=ComputeResources(8_000, 1024)), at(2)
    )
    assert free(index, "n1") == (56_000, 1024), "it was resized in place"
    allocation_state.observe_pod(dataclasses.replace(bound, phase=PodPhase.ENDED), at(3))
    assert free(index, "n1") == (64_000, 2048)


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
        requests = ComputeResources(1_000 * len(taken), 10 * len(taken))
        index.set_requests(PodUid(f"on-{node}"), NodeName(node), requests)
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

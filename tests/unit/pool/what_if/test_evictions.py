"""The cheapest set of pods that frees capacity, against every set there is."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import DeviceTopology
from api.names import NodeName, UnitId
from pool.allocation_state import AllocationState
from pool.model import PodFacts, PodPhase
from pool.what_if.evictions import NodeEviction, cheapest_eviction, fits_when_empty
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, a_pool, at

DEVICES = 4
NODES = ("n1", "n2")


@st.composite
def states(draw: st.DrawFn) -> AllocationState:
    """Draw two nodes with four devices each, some of them faulted, and pods on them."""
    state = AllocationState()
    state.index.replace_pool(a_pool())
    for node in NODES:
        state.index.replace_node(a_node(node))
        owners = draw(st.lists(st.integers(0, 3), min_size=DEVICES, max_size=DEVICES))
        for number in range(DEVICES):
            is_faulted = draw(st.integers(0, 7)) == 0
            state.index.replace_device(a_device(node, number, is_faulted=is_faulted))
        for owner in set(owners) - {0}:
            numbers = [number for number in range(DEVICES) if owners[number] == owner]
            priority = draw(st.integers(0, 2))
            pod = _bound(f"{node}-p{owner}", node, numbers, priority=priority)
            state.observe_pod(pod, at(0))
    return state


def _bound(name: str, node: str, numbers: list[int], *, priority: int) -> PodFacts:
    units = tuple(UnitId(f"GPU-{node}-{number}") for number in numbers)
    return a_pod_facts(
        name,
        units=len(numbers),
        phase=PodPhase.BOUND,
        node=NodeName(node),
        devices={"c0": units},
        priority=priority,
    )


@given(states(), st.integers(1, DEVICES))
def test_it_is_the_cheapest_of_all_sets(state: AllocationState, units: int):
    requested = (a_pool(), a_demand(units))
    nodes = [NodeName(node) for node in NODES]
    if any(state.reader.refusal_on(node, *requested) is None for node in nodes):
        return
    everything = [
        NodeEviction(node, chosen)
        for node in nodes
        for pods in [[pod for pod in state.reader.pods.all() if pod.node == node]]
        for size in range(1, len(pods) + 1)
        for chosen in itertools.combinations(pods, size)
        if state.reader.fits_without([pod.uid for pod in chosen], node, requested)
    ]
    found = cheapest_eviction(
        state.reader, state.index, requested, nodes=nodes, has_capacity=lambda *_: True
    )
    want = min((item.cost for item in everything), default=None)
    assert (found.cost if found else None) == want


def test_room_beyond_devices_decides_too():
    state = AllocationState()
    state.index.replace_pool(a_pool())
    for node in NODES:
        state.index.replace_node(a_node(node))
        state.index.replace_device(a_device(node, 0))
        state.observe_pod(_bound(f"{node}-p", node, [0], priority=0), at(0))
    found = cheapest_eviction(
        state.reader,
        state.index,
        (a_pool(), a_demand(1)),
        nodes=[NodeName(node) for node in NODES],
        has_capacity=lambda node, _: node == "n2",
    )
    assert found is not None
    assert [pod.name for pod in found.pods] == ["n2-p"]


def test_a_node_is_taken_as_healthy_and_empty():
    state = AllocationState()
    state.index.replace_pool(a_pool())
    state.index.replace_node(a_node("n1", is_cordoned=True))
    for number in range(2):
        state.index.replace_device(a_device("n1", number, is_faulted=True))
    state.observe_pod(_bound("p", "n1", [0], priority=0), at(0))
    found = [
        fits_when_empty(state.index, (a_pool(), a_demand(units)), NodeName("n1"))
        for units in (2, 3)
    ]
    assert found == [True, False]


def test_a_pool_that_requires_alignment_is_freed_an_aligned_set():
    state = AllocationState()
    pool = a_pool(device_topology=DeviceTopology.REQUIRED)
    state.index.replace_pool(pool)
    state.index.replace_node(a_node("n1"))
    for number in range(DEVICES):
        state.index.replace_device(a_device("n1", number, numa_node=number % 2))
    for name, number in (("cheap", 0), ("dear", 1)):
        state.observe_pod(_bound(name, "n1", [number], priority=number), at(0))
    requested = (pool, a_demand(2))
    assert state.reader.refusal_on(NodeName("n1"), *requested) is not None
    found = cheapest_eviction(
        state.reader, state.index, requested, nodes=[NodeName("n1")], has_capacity=lambda *_: True
    )
    assert found is not None
    assert [pod.name for pod in found.pods] == ["cheap"]
    assert fits_when_empty(state.index, requested, NodeName("n1"))
    assert not fits_when_empty(state.index, (pool, a_demand(3)), NodeName("n1"))

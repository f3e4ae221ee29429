"""Free units count for a pod only where it could use them: by its kernel caches, and by CPU and memory of the node."""

import msgspec

from api.names import NodeName, PodUid
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import UnitlessPod
from pool.placement.planner import PlacementRefused
from tests.support.builders import a_demand, a_device, a_node, at
from tests.support.cache_demands import LLAMA, a_resolved_cache
from tests.support.scaling_plans import (
    a_bound_pod,
    a_shape,
    a_waiting_pod,
    an_index,
    launched,
    planned,
    ready,
    some_parameters,
)

WITH_CACHE = msgspec.structs.replace(a_demand(1), caches=(LLAMA,))
"""One unit of a device of compute capability 9.0."""
OLD = "2025-12-31T00:00:00Z"


def a_mixed_pool() -> AllocationState:
    """An H100 that a pod has, and a free A100."""
    state, caches = AllocationState(an_index()), CacheIndex()
    state.index.caches = caches
    caches.set_cache(LLAMA, a_resolved_cache(90))
    for node, capability in (("h100", "9.0"), ("a100", "8.0")):
        state.index.replace_node(a_node(node))
        state.index.replace_device(a_device(node, 0, compute_capability=capability))
    state.observe_pod(a_bound_pod("other", "h100", [0]), at(0))
    return state


def test_a_node_is_asked_for_where_the_cache_of_a_pod_does_not_fit_the_free_devices():
    state = a_mixed_pool()
    pod = a_waiting_pod("p", demand=WITH_CACHE)
    state.observe_pod(pod, at(0))
    for node in ("h100", "a100"):
        placed = state.reader.plan_bind(
            NodeName(node), state.index.pools()[0], WITH_CACHE, uid=pod.uid
        )
        assert isinstance(placed, PlacementRefused)
    plan = planned(some_parameters(), [pod], state.index)
    assert [request.pods for request in plan.requests] == [(pod.uid,)]


def test_free_units_are_left_to_the_pods_that_can_use_them():
    first = a_waiting_pod("a", demand=WITH_CACHE, created="2026-01-01T00:00:00Z")
    second = a_waiting_pod("b", created="2026-01-01T00:00:01Z")
    plan = planned(some_parameters(), [first, second], a_mixed_pool().index)
    assert [request.pods for request in plan.requests] == [(first.uid,)]
    assert second.uid not in plan.waits


def test_an_ungated_pod_is_not_told_that_units_are_free_which_its_cache_does_not_fit():
    pod = a_waiting_pod("p", demand=WITH_CACHE, awaits_capacity=False, created=OLD)
    plan = planned(some_parameters(), [pod], a_mixed_pool().index)
    assert len(plan.requests) == 1
    assert not plan.waits


def test_pods_with_caches_and_without_share_the_devices_of_a_node():
    """The cache fits one of two devices: only one of the pods that mount it has room."""
    state = a_mixed_pool()
    state.index.replace_device(a_device("a100", 1, compute_capability="9.0"))
    caching = [a_waiting_pod(f"c{number}", demand=WITH_CACHE) for number in range(2)]
    plan = planned(some_parameters(), [*caching, a_waiting_pod("plain")], state.index)
    assert [request.pods for request in plan.requests] == [(caching[1].uid,)]


def a_full_node(free_cpu_milli: int = 1_000) -> AllocationState:
    state = AllocationState(an_index())
    state.index.replace_node(a_node("n1", cpu_milli=64_000, memory_mib=512_000))
    state.index.replace_device(a_device("n1", 0))
    taken = ComputeResources(64_000 - free_cpu_milli, 0)
    state.observe_unitless(UnitlessPod(PodUid("web"), NodeName("n1"), taken))
    return state


def test_a_node_is_asked_for_where_free_units_are_on_a_node_without_the_cpu():
    for awaits_capacity in (True, False):
        pod = a_waiting_pod(
            "p",
            requests=ComputeResources(8_000, 1_000),
            awaits_capacity=awaits_capacity,
            created=OLD,
        )
        plan = planned(some_parameters(), [pod], a_full_node().index)
        assert [request.pods for request in plan.requests] == [(pod.uid,)]


def test_cpu_that_one_pod_gets_is_no_more_for_the_next_one():
    state = a_full_node(free_cpu_milli=10_000)
    state.index.replace_device(a_device("n1", 1))
    pods = [a_waiting_pod(f"p{item}", requests=ComputeResources(8_000, 0)) for item in range(2)]
    plan = planned(some_parameters(), pods, state.index)
    assert [request.pods for request in plan.requests] == [(pods[1].uid,)]


def test_the_cpu_of_a_node_that_has_come_is_its_own():
    state = AllocationState(an_index())
    parameters = some_parameters(a_shape("one", 2, cpu_milli=64_000))
    pods = [a_waiting_pod(f"p{item}", requests=ComputeResources(8_000, 0)) for item in range(2)]
    (request,) = planned(parameters, pods, state.index).requests
    assert launched(request).is_in_flight
    state.index.replace_node(a_node("new", cpu_milli=12_000))
    for number in range(2):
        state.index.replace_device(a_device("new", number))
    plan = planned(parameters, pods, state.index, in_flight=(ready(request, "new", 2),))
    assert plan.assigned[request.id] == (pods[0].uid,)
    assert [request.pods for request in plan.requests] == [(pods[1].uid,)]

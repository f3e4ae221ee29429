"""What is asked for: waiting pods minus free units, and minus nodes on their way."""

import dataclasses
import datetime as dt
from typing import Any

import msgspec
import pytest

from api.names import ReservationId
from autoscaling.scaling_model import RequestPhase, ScalingPlan, ShapeHistory, WaitReason
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import Constraints
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from tests.support.builders import a_demand, a_device, a_node, a_pool, a_slice_pool, at
from tests.support.cache_demands import LLAMA, a_resolved_cache
from tests.support.scaling_plans import (
    NOW,
    a_shape,
    a_waiting_pod,
    add_node,
    an_index,
    launched,
    planned,
    ready,
    signalled,
    some_parameters,
)


def pods(*units: int, **changes: Any):
    return [
        a_waiting_pod(
            f"p{number:02}", units=count, created=f"2026-01-01T00:00:{number:02}Z", **changes
        )
        for number, count in enumerate(units)
    ]


def packed(plan: ScalingPlan) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (request.shape.name, tuple(uid.removeprefix("uid-") for uid in request.pods))
        for request in plan.requests
    ]


def applied(plan: ScalingPlan):
    return tuple(signalled(request) for request in plan.requests)


def test_no_pod_asks_for_nothing():
    assert planned(some_parameters(), []) == ScalingPlan()


def test_a_pod_gets_a_node_from_zero():
    plan = planned(some_parameters(), pods(1))
    assert packed(plan) == [("eight", ("p00",))]
    assert plan.assigned == {plan.requests[0].id: plan.requests[0].pods}
    assert plan.requests[0].pods
    assert not plan.waits


def test_pods_that_fill_one_node_ask_for_one_node():
    """Weak point 10: demand is packed; no pod asks for a node of its own."""
    assert packed(planned(some_parameters(), pods(2, 2, 1))) == [("eight", ("p00", "p01", "p02"))]


def test_demand_of_many_nodes_is_asked_for_at_once():
    """Weak point 9: there is no deduplication by model, so node-sized demands do not wait for each other."""
    plan = planned(some_parameters(), pods(8, 8, 8, 8, 8))
    assert len(plan.requests) == 5
    assert len({request.id for request in plan.requests}) == 5


def test_a_hundred_pods_for_twenty_nodes_ask_for_twenty():
    """Weak point 10, the issue's figure."""
    waiting = [a_waiting_pod(f"p{number:03}", units=1) for number in range(100)]
    plan = planned(some_parameters(a_shape("five", 5)), waiting)
    assert len(plan.requests) == 20
    assert {len(request.pods) for request in plan.requests} == {5}


def test_a_plan_that_is_carried_out_asks_for_nothing_more():
    """Weak point 10: nodes on their way are supply, and each keeps its pods."""
    waiting = pods(3, 5, 4, 1, 8, 2, 2, 7)
    first = planned(some_parameters(), waiting)
    for form in (signalled, launched):
        on_their_way = tuple(form(request) for request in first.requests)
        again = planned(some_parameters(), waiting, in_flight=on_their_way)
        assert not again.requests
        assert not again.cancels
        assert again.assigned == first.assigned


def test_the_order_of_the_input_does_not_matter():
    waiting = pods(3, 5, 4, 1, 8, 2, 2, 7)
    assert planned(some_parameters(), waiting) == planned(some_parameters(), waiting[::-1])


def test_free_units_are_taken_first():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, used=4)
    plan = planned(some_parameters(), pods(2, 2, 2), state.index)
    assert packed(plan) == [("eight", ("p02",))]


def test_free_units_on_several_nodes_do_not_serve_a_pod_of_one_node():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=2)
    add_node(state, "n2", devices=2)
    assert packed(planned(some_parameters(), pods(4), state.index)) == [("eight", ("p00",))]


@pytest.mark.parametrize(
    "change", [{"is_leaving": True}, {"is_cordoned": True}, {"is_ready": False}]
)
def test_units_of_a_node_that_takes_no_pods_are_not_free(change: dict[str, bool]):
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, **change)
    assert len(planned(some_parameters(), pods(1), state.index).requests) == 1


def test_planning_leaves_the_index_alone():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, used=4)
    generation, capacity = state.index.generation, state.index.state(a_pool().name).capacity()
    planned(some_parameters(), pods(2, 8), state.index)
    assert state.index.generation == generation
    assert state.index.state(a_pool().name).capacity() == capacity


def test_pods_of_higher_priority_get_the_nodes_that_may_come():
    urgent = a_waiting_pod("urgent", units=8, priority=10, created="2026-01-01T01:00:00Z")
    plan = planned(some_parameters(max_units=8), [*pods(8), urgent])
    assert packed(plan) == [("eight", ("urgent",))]
    assert [wait.reason for wait in plan.waits.values()] == [WaitReason.MAX_UNITS]


def test_the_first_shape_of_the_spec_that_serves_is_taken():
    """Weak point 5: shapes are a list, told apart by labels; no type is named by a pod."""
    parameters = some_parameters(a_shape("two", 2), a_shape("eight", 8))
    assert packed(planned(parameters, pods(1))) == [("two", ("p00",))]
    assert packed(planned(parameters, pods(3))) == [("eight", ("p00",))]


def test_host_memory_is_what_pods_request_not_that_of_devices():
    """Weak point 4: a signal asks for its pods' CPU and memory, never for memory as large as the devices'."""
    waiting = [dataclasses.replace(pod, requests=ComputeResources(500, 1024)) for pod in pods(1, 1)]
    assert planned(some_parameters(), waiting).requests[0].requests == ComputeResources(1000, 2048)


def test_the_largest_first_where_that_needs_fewer_nodes():
    assert len(planned(some_parameters(), pods(1, 3, 4, 8)).requests) == 2
    assert len(planned(some_parameters(), pods(3, 3, 5, 5)).requests) == 2


def test_slices_are_packed_by_unit():
    """Weak point 1: shared devices scale, too; Kubernetes would see them as free."""
    pool = a_slice_pool(slices=4)
    parameters = some_parameters(a_shape("two", 2, units_per_device=4), pool=pool)
    waiting = [a_waiting_pod(f"p{number}", units=1, pool="slices") for number in range(9)]
    assert [len(request.pods) for request in planned(parameters, waiting).requests] == [8, 1]


def test_in_flight_nodes_serve_new_pods():
    first = planned(some_parameters(), pods(2))
    plan = planned(some_parameters(), pods(2, 3), in_flight=applied(first))
    assert not plan.requests
    assert [len(uids) for uids in plan.assigned.values()] == [2]


def test_demand_that_has_vanished_before_launch_is_cancelled():
    first = planned(some_parameters(), pods(8, 8))
    plan = planned(some_parameters(), pods(8), in_flight=applied(first))
    assert [(cancel.id, cancel.phase) for cancel in plan.cancels] == [
        (first.requests[1].id, RequestPhase.SUPERSEDED)
    ]
    assert not plan.requests


def test_a_launched_node_is_never_cancelled():
    first = planned(some_parameters(), pods(8))
    on_their_way = tuple(launched(request) for request in first.requests)
    assert planned(some_parameters(), [], in_flight=on_their_way) == ScalingPlan()


@pytest.mark.parametrize("phase", [RequestPhase.FAILED, RequestPhase.EXPIRED])
def test_a_failed_request_is_cancelled_and_asked_for_again(phase: RequestPhase):
    first = planned(some_parameters(), pods(8))
    failed = signalled(first.requests[0], phase=phase, message="no capacity")
    plan = planned(some_parameters(), pods(8), in_flight=(failed,), used_ids=frozenset({failed.id}))
    assert [(cancel.id, cancel.phase, cancel.message) for cancel in plan.cancels] == [
        (failed.id, phase, "no capacity")
    ]
    assert len(plan.requests) == 1
    assert plan.requests[0].id != failed.id


def test_a_node_with_fewer_devices_than_its_shape_promised_is_counted_as_it_is():
    first = planned(some_parameters(), pods(8))
    state = AllocationState(an_index())
    add_node(state, "n1", devices=4)
    came = ready(first.requests[0], "n1", 4)
    plan = planned(some_parameters(), pods(8), state.index, in_flight=(came,))
    assert len(plan.requests) == 1
    assert not plan.cancels


def test_a_node_on_its_way_whose_devices_are_known_counts_once():
    first = planned(some_parameters(), pods(4))
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, used=2)
    came = ready(first.requests[0], "n1", 8)
    plan = planned(some_parameters(), pods(4, 4), state.index, in_flight=(came,))
    assert plan.assigned[came.id] == ("uid-p00",)
    assert len(plan.requests) == 1


def test_a_node_on_its_way_that_leaves_is_no_supply():
    first = planned(some_parameters(), pods(8))
    came = ready(first.requests[0], "n1", 8)
    assert came.node is not None
    leaving = dataclasses.replace(came, node=dataclasses.replace(came.node, is_leaving=True))
    assert len(planned(some_parameters(), pods(8), in_flight=(leaving,)).requests) == 1


def test_a_pool_that_is_closed_asks_for_nothing_and_cancels_what_is_not_launched():
    first = planned(some_parameters(), pods(8, 8))
    parameters = some_parameters(pool=a_pool(is_in_maintenance=True))
    on_their_way = (signalled(first.requests[0]), launched(first.requests[1]))
    plan = planned(parameters, pods(8), in_flight=on_their_way)
    assert [cancel.id for cancel in plan.cancels] == [first.requests[0].id]
    assert [wait.reason for wait in plan.waits.values()] == [WaitReason.POOL_CLOSED]
    assert not plan.requests


def test_requests_of_a_shape_that_is_gone_from_the_spec_are_cancelled():
    first = planned(some_parameters(), pods(8))
    gone = dataclasses.replace(signalled(first.requests[0]), shape=None)
    plan = planned(some_parameters(a_shape("other", 8)), pods(8), in_flight=(gone,))
    assert [cancel.id for cancel in plan.cancels] == [gone.id]
    assert packed(plan) == [("other", ("p00",))]


@pytest.mark.parametrize("days", [-400, 0, 400])
def test_clocks_that_jump_change_no_plan(days: int):
    waiting = pods(3, 5, 4)
    created = NOW + dt.timedelta(days=days)
    first = planned(some_parameters(), waiting)
    on_their_way = tuple(signalled(request, created=created) for request in first.requests)
    assert not planned(some_parameters(), waiting, in_flight=on_their_way).requests


def test_free_units_reserved_for_a_pod_that_is_not_stored_yet_are_taken():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=2)
    pool = a_pool()
    placed = state.reader.admission.plan(pool, a_demand(1), Constraints())
    request = PlacementRequest(id=ReservationId("r"), pool=pool, demand=a_demand(1), namespace="x")
    assert isinstance(placed, Placed)
    state.reserve(request, placed, at(0))
    assert len(planned(some_parameters(), pods(2), state.index).requests) == 1


A10, H100 = ("a10", "8.6"), ("h100", "9.0")


@pytest.mark.parametrize(
    ("said", "reported", "expected"),
    [
        pytest.param((A10, H100), (), "h100", id="the shape that fits, not the first one"),
        pytest.param((("new", ""), H100), (), "h100", id="one that fits before an unknown one"),
        pytest.param((A10, ("new", "")), (), "new", id="an unknown one before none"),
        pytest.param((("a10", ""), H100), (A10,), "h100", id="as the last node had it"),
        pytest.param((("a10", "9.0"), ("h100", "")), (A10,), "h100", id="nodes, not the spec"),
        pytest.param((A10, ("a30", "8.0")), (), None, id="none"),
        pytest.param((A10, ("h100", "")), (("h100", "8.9 9.0"),), None, id="one of two kinds"),
        pytest.param((A10, ("h100", "")), (("h100", "8.9"),), None, id="none that came"),
    ],
)
@pytest.mark.parametrize("present", ["", "8.6"])
def test_a_pod_with_a_kernel_cache_gets_a_shape_that_fits_it(
    said: tuple[tuple[str, str], ...],
    reported: tuple[tuple[str, str], ...],
    expected: str | None,
    present: str,
):
    """Devices that the pool has say nothing of those that it can get."""
    state, caches = AllocationState(an_index()), CacheIndex()
    state.index.caches = caches
    caches.set_cache(LLAMA, a_resolved_cache(90))
    state.index.replace_node(a_node("n1"))
    if present:
        state.index.replace_device(a_device("n1", 0, compute_capability=present))
    shapes = (a_shape(name, compute_capability=value) for name, value in said)
    demand = msgspec.structs.replace(a_demand(1), caches=(LLAMA,))
    history = tuple(
        ShapeHistory(shape=shape, capabilities=tuple(value.split()), capabilities_at=1)
        for shape, value in reported
    )
    plan = planned(some_parameters(*shapes), pods(1, demand=demand), state.index, history=history)
    waits = [(wait.reason, "90 of the cache" in wait.message) for wait in plan.waits.values()]
    assert waits == ([] if expected else [(WaitReason.CACHE_INCOMPATIBILITY, True)])
    assert packed(plan) == ([(expected, ("p00",))] if expected else [])


def test_a_pod_with_a_kernel_cache_waits_for_no_node_on_its_way_that_it_does_not_fit():
    index, caches = an_index(), CacheIndex()
    index.caches = caches
    caches.set_cache(LLAMA, a_resolved_cache(90))
    parameters = some_parameters(
        *(a_shape(name, compute_capability=value) for name, value in (A10, H100))
    )
    first = planned(parameters, pods(1), index)
    assert packed(first) == [("a10", ("p00",))]
    demand = msgspec.structs.replace(a_demand(1), caches=(LLAMA,))
    both = [*pods(1), a_waiting_pod("cached", demand=demand)]
    plan = planned(parameters, both, index, in_flight=tuple(map(signalled, first.requests)))
    assert packed(plan) == [("h100", ("cached",))]

"""Limits of a pool's nodes are kept, and a pod is told which one holds it up."""

from typing import Any

import pytest

from autoscaling.scaling_limits import amount_text
from autoscaling.scaling_model import MICRO, NodePoolFacts, WaitReason
from pool.allocation_state import AllocationState
from tests.support.builders import a_pool
from tests.support.scaling_plans import (
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


def eights(count: int):
    return [a_waiting_pod(f"p{number}", units=8) for number in range(count)]


def a_node_pool(limits: dict[str, int], used: dict[str, int]) -> dict[str, Any]:
    return {"node_pools": {"whole": NodePoolFacts(name="whole", limits=limits, used=used)}}


def outcome(plan: Any) -> tuple[int, set[WaitReason]]:
    return len(plan.requests), {wait.reason for wait in plan.waits.values()}


def test_max_units_counts_what_is_there_on_its_way_and_asked_for():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, used=8)
    parameters = some_parameters(max_units=24)
    first = planned(parameters, eights(3), state.index)
    assert outcome(first) == (2, {WaitReason.MAX_UNITS})
    (message,) = {wait.message for wait in first.waits.values()}
    assert "24" in message
    on_their_way = tuple(signalled(request) for request in first.requests)
    again = planned(parameters, eights(3), state.index, in_flight=on_their_way)
    assert outcome(again) == (0, {WaitReason.MAX_UNITS})


def test_a_node_on_its_way_whose_devices_are_known_counts_once():
    first = planned(some_parameters(), eights(1))
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8)
    came = ready(first.requests[0], "n1", 8)
    parameters = some_parameters(max_units=16)
    assert outcome(planned(parameters, eights(2), state.index, in_flight=(came,))) == (1, set())


def test_a_smaller_shape_is_taken_where_the_first_would_break_a_limit():
    parameters = some_parameters(a_shape("eight", 8), a_shape("two", 2), max_units=10)
    plan = planned(parameters, [a_waiting_pod("p0", units=8), a_waiting_pod("p1", units=2)])
    assert [request.shape.name for request in plan.requests] == ["eight", "two"]


def test_max_in_flight_counts_nodes_that_were_launched():
    parameters = some_parameters(max_in_flight=3)
    first = planned(parameters, eights(5))
    assert outcome(first) == (3, {WaitReason.MAX_IN_FLIGHT})
    on_their_way = tuple(launched(request) for request in first.requests)
    assert outcome(planned(parameters, eights(5), in_flight=on_their_way)) == (
        0,
        {WaitReason.MAX_IN_FLIGHT},
    )


@pytest.mark.parametrize(
    ("limits", "used", "expected"),
    [
        pytest.param({"nodes": 8}, {"nodes": 6}, 2, id="nodes"),
        pytest.param({"nodes": 8}, {"nodes": 8}, 0, id="at the limit"),
        pytest.param({"nvidia.com/gpu": 24}, {"nvidia.com/gpu": 8}, 2, id="devices"),
        pytest.param({"cpu": 100_000}, {"cpu": 20_000}, 2, id="cpu"),
        pytest.param({"example.com/x": 5}, {"example.com/x": 5}, 0, id="unknown, used up"),
        pytest.param({"example.com/x": 5}, {"example.com/x": 4}, 3, id="unknown, some left"),
    ],
)
@pytest.mark.parametrize("signal_resource", ["", "nvidia.com/gpu"])
def test_limits_of_the_node_pool(
    limits: dict[str, int], used: dict[str, int], expected: int, signal_resource: str
):
    """Weak point 15: a NodePool at its limit is told as such, before the autoscaler refuses."""
    parameters = some_parameters(a_shape(cpu_milli=40_000), signal_resource=signal_resource)
    plan = planned(parameters, eights(3), **a_node_pool(limits, used))
    assert len(plan.requests) == expected
    assert {wait.reason for wait in plan.waits.values()} <= {WaitReason.NODE_POOL_LIMIT}


def test_nodes_that_were_launched_are_in_the_figures_of_the_node_pool():
    parameters = some_parameters()
    first = planned(parameters, eights(2))
    on_their_way = (launched(first.requests[0]), signalled(first.requests[1]))
    limited = a_node_pool({"nodes": 3}, {"nodes": 1})
    assert outcome(planned(parameters, eights(4), in_flight=on_their_way, **limited)) == (
        1,
        {WaitReason.NODE_POOL_LIMIT},
    )


def test_the_budget_of_an_hour_counts_running_nodes_and_those_on_their_way():
    """Weak point 15: a budget is kept, not only watched."""
    parameters = some_parameters(a_shape(price_micro=10 * MICRO), per_hour_micro=45 * MICRO)
    first = planned(parameters, eights(4), running_micro=20 * MICRO)
    assert outcome(first) == (2, {WaitReason.BUDGET_HOUR})
    on_their_way = tuple(launched(request) for request in first.requests)
    again = planned(parameters, eights(4), running_micro=20 * MICRO, in_flight=on_their_way)
    assert outcome(again) == (0, {WaitReason.BUDGET_HOUR})


def test_the_budget_of_a_day_must_pay_one_more_hour_of_all_nodes():
    """Weak point 15."""
    parameters = some_parameters(a_shape(price_micro=10 * MICRO), per_day_micro=100 * MICRO)
    plan = planned(parameters, eights(4), running_micro=10 * MICRO, spent_today_micro=65 * MICRO)
    assert outcome(plan) == (2, {WaitReason.BUDGET_DAY})
    (message,) = {wait.message for wait in plan.waits.values()}
    assert "100.00" in message


def test_a_shape_without_a_price_costs_nothing():
    parameters = some_parameters(per_hour_micro=MICRO, per_day_micro=MICRO)
    assert outcome(planned(parameters, eights(2), running_micro=9 * MICRO)) == (2, set())


def test_a_cheaper_shape_is_taken_where_the_first_is_too_dear():
    parameters = some_parameters(
        a_shape("dear", 8, price_micro=30 * MICRO),
        a_shape("cheap", 8, price_micro=5 * MICRO),
        per_hour_micro=10 * MICRO,
    )
    plan = planned(parameters, eights(3))
    assert [request.shape.name for request in plan.requests] == ["cheap", "cheap"]


def test_a_backend_that_cannot_be_used_asks_for_nothing():
    plan = planned(
        some_parameters(), eights(1), backend_fault="Karpenter's kinds are missing: install it"
    )
    assert outcome(plan) == (0, {WaitReason.BACKEND_MISSING})


def test_amounts_are_told_with_two_places():
    assert [amount_text(item) for item in (0, MICRO // 2, 12_345_600, 1_000_001)] == [
        "0.00",
        "0.50",
        "12.3456",
        "1.000001",
    ]


def test_a_limit_says_the_pool_and_what_to_change():
    plan = planned(some_parameters(max_units=1, pool=a_pool()), eights(1))
    (wait,) = plan.waits.values()
    assert "pool whole" in wait.message
    assert "spec.autoscaling.maxUnits" in wait.message

"""minUnits and warmUnits: what is asked for, what is kept, and that pods go first."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from api.names import NodeName
from autoscaling.scaling_model import RequestPhase, WaitReason
from autoscaling.warm_nodes import keep_nodes
from pool.allocation_state import AllocationState
from pool.index.node_view import PoolNode
from tests.support.builders import a_pool
from tests.support.scaling_plans import (
    a_shape,
    a_waiting_pod,
    add_node,
    an_index,
    launched,
    planned,
    signalled,
    some_parameters,
)


def test_min_units_are_asked_for_from_zero():
    plan = planned(some_parameters(min_units=17), [])
    assert [request.pods for request in plan.requests] == [()] * 3
    assert plan.warm_wait is None
    again = planned(
        some_parameters(min_units=17), [], in_flight=tuple(map(signalled, plan.requests))
    )
    assert not again.requests
    assert not again.cancels


def test_used_units_count_for_min_units_and_not_for_warm_units():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, used=8)
    assert not planned(some_parameters(min_units=8), [], state.index).requests
    assert len(planned(some_parameters(warm_units=1), [], state.index).requests) == 1


def test_warm_units_are_beyond_those_that_waiting_pods_need():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8)
    assert not planned(
        some_parameters(warm_units=4), [a_waiting_pod(units=4)], state.index
    ).requests
    plan = planned(some_parameters(warm_units=4), [a_waiting_pod(units=5)], state.index)
    assert [request.pods for request in plan.requests] == [()]


def test_what_is_left_of_a_new_node_is_warm():
    plan = planned(some_parameters(warm_units=4), [a_waiting_pod(units=4)])
    assert [bool(request.pods) for request in plan.requests] == [True]


def test_a_warm_node_on_its_way_serves_pods():
    first = planned(some_parameters(warm_units=8), [])
    on_their_way = tuple(map(signalled, first.requests))
    plan = planned(some_parameters(warm_units=0), [a_waiting_pod(units=8)], in_flight=on_their_way)
    assert list(plan.assigned) == [first.requests[0].id]
    assert not plan.requests


def test_warm_nodes_that_are_not_needed_any_more_are_cancelled_unless_launched():
    first = planned(some_parameters(warm_units=16), [])
    on_their_way = (launched(first.requests[0]), signalled(first.requests[1]))
    plan = planned(some_parameters(warm_units=8), [], in_flight=on_their_way)
    assert [(cancel.id, cancel.phase) for cancel in plan.cancels] == [
        (first.requests[1].id, RequestPhase.SUPERSEDED)
    ]


def test_warm_units_yield_to_pods_under_a_limit():
    parameters = some_parameters(a_shape("eight", 8), a_shape("two", 2), max_units=8, warm_units=2)
    warm = planned(parameters, [])
    assert len(warm.requests) == 1
    on_their_way = tuple(map(signalled, warm.requests))
    big = some_parameters(a_shape("eight", 8), max_units=8, warm_units=2)
    waiting = [a_waiting_pod(f"p{number}", units=8) for number in range(2)]
    plan = planned(big, waiting, in_flight=on_their_way)
    assert plan.warm_wait is not None
    assert plan.warm_wait.reason is WaitReason.MAX_UNITS
    two = tuple(
        signalled(request)
        for request in planned(some_parameters(a_shape("two", 2), warm_units=2), []).requests
    )
    plan = planned(parameters, [a_waiting_pod(units=8)], in_flight=two)
    assert [cancel.id for cancel in plan.cancels] == [two[0].id]


def test_max_units_is_kept_where_min_units_is_above():
    plan = planned(some_parameters(min_units=24, max_units=16), [])
    assert len(plan.requests) == 2
    assert plan.warm_wait is not None
    assert plan.warm_wait.reason is WaitReason.MAX_UNITS


def test_a_leaving_node_is_replaced_for_min_units():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, is_leaving=True)
    assert len(planned(some_parameters(min_units=8), [], state.index).requests) == 1


NODES = st.dictionaries(
    st.sampled_from([NodeName(f"n{number}") for number in range(6)]),
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()).map(
        lambda drawn: PoolNode(
            total=drawn[0] + drawn[1],
            used=drawn[0],
            reserved=0,
            free=drawn[1],
            unhealthy=0,
            partial=0,
            is_placeable=drawn[2],
        )
    ),
)


@given(NODES, st.integers(0, 20), st.integers(0, 12))
def test_the_fewest_empty_nodes_are_kept(
    nodes: dict[NodeName, PoolNode], min_units: int, warm_units: int
):
    parameters = some_parameters(min_units=min_units, warm_units=warm_units)
    kept = keep_nodes(parameters, nodes)
    usable = {name: node for name, node in nodes.items() if node.is_placeable}
    empty = [name for name, node in usable.items() if not node.used]
    assert kept <= set(empty)

    def suffices(some: set[NodeName]) -> bool:
        counted = [node for name, node in usable.items() if node.used or name in some]
        return (
            sum(node.total for node in counted) >= min_units
            and sum(node.free for node in counted) >= warm_units
        )

    for size in range(len(kept)):
        assert not any(
            suffices(set(combination)) for combination in itertools.combinations(empty, size)
        )
    assert suffices(set(kept)) or len(kept) == len(empty)


def test_a_closed_pool_and_permanent_nodes_keep_nothing():
    node = PoolNode(total=8, used=0, reserved=0, free=8, unhealthy=0, partial=0)
    nodes = {NodeName("n1"): node, NodeName("n2"): node}
    assert keep_nodes(some_parameters(min_units=8), nodes) == {"n1"}
    assert not keep_nodes(
        some_parameters(min_units=8), nodes, permanent=frozenset({NodeName("n2")})
    )
    assert not keep_nodes(some_parameters(min_units=8, pool=a_pool(is_terminating=True)), nodes)

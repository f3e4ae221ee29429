"""What filter and prioritize read: refusals and scores per node and size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import Strategy
from api.names import NodeName, PoolName
from pool.index.node_view import MAX_SCORE, PREFERENCES, PoolNode, refusal_of, score_of
from pool.placement.unit_request import UnitRequest
from pool.refusal import NodeReason, NodeRefusal
from tests.support.allocation_state import (
    N1,
    N2,
    a_bound_pod,
    a_reserved_pod,
    pool_of,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_demand, a_device, a_pool, a_slice_pool, at

WHOLE = PoolName("whole")


def a_pool_node(total: int = 8, *, used: int = 0, reserved: int = 0, **changes: Any) -> PoolNode:
    free = total - used - reserved - changes.get("unhealthy", 0)
    return PoolNode(
        total=total,
        used=used,
        reserved=reserved,
        free=free,
        **{"unhealthy": 0, "partial": 0, **changes},
    )


@st.composite
def pool_nodes(draw: st.DrawFn) -> PoolNode:
    total = draw(st.integers(1, 32))
    used = draw(st.integers(0, total))
    free = total - used
    return a_pool_node(total, used=used, partial=draw(st.integers(0, free)))


def test_a_node_with_enough_free_units_fits() -> None:
    assert refusal_of(a_pool_node(4, used=2), UnitRequest(2)) is None


def test_a_node_with_too_few_free_units_says_who_has_them() -> None:
    assert refusal_of(
        a_pool_node(8, used=3, reserved=2, unhealthy=1, unusable=1), UnitRequest(4)
    ) == NodeRefusal(
        reason=NodeReason.INSUFFICIENT_UNITS,
        requested=4,
        free=2,
        reserved=2,
        used=3,
        unhealthy=1,
        total=8,
    )


def test_a_node_that_never_has_enough_is_too_small() -> None:
    refusal = refusal_of(a_pool_node(2), UnitRequest(3))
    assert refusal is not None
    assert refusal.reason is NodeReason.NODE_TOO_SMALL


def test_used_units_of_a_faulted_device_are_not_won_by_eviction() -> None:
    """Two devices, one of them faulted and in use: no eviction makes two healthy ones."""
    allocation_state = some_allocation_state(
        devices=[a_device(), a_device(index=1, is_faulted=True)]
    )
    for index in (0, 1):
        allocation_state.observe_pod(a_bound_pod(f"p{index}", f"GPU-n1-{index}"), at(0))
    refusal = allocation_state.index.view(WHOLE, a_demand(2)).refusals[N1]
    assert refusal is not None
    assert (refusal.reason, refusal.unhealthy, refusal.total) == (NodeReason.NODE_TOO_SMALL, 1, 2)


def test_a_node_with_an_unaccounted_pod_takes_nobody() -> None:
    refusal = refusal_of(a_pool_node(8, used=1, unaccounted=2), UnitRequest(1))
    assert refusal is not None
    assert (refusal.reason, refusal.used) == (NodeReason.UNACCOUNTED_PODS, 3)


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        (NodeReason.INSUFFICIENT_UNITS, True),
        (NodeReason.UNACCOUNTED_PODS, True),
        (NodeReason.NODE_TOO_SMALL, False),
        (NodeReason.NODE_NOT_IN_POOL, False),
        (NodeReason.UNKNOWN_NODE, False),
    ],
)
def test_preemption_may_try_only_where_it_can_help(reason: NodeReason, want: bool) -> None:
    assert reason.is_resolvable is want


@given(pool_nodes(), st.integers(1, 32), st.sampled_from(Strategy))
def test_scores_leave_the_best_one_to_the_pods_own_reservation(
    node: PoolNode, size: int, strategy: Strategy
) -> None:
    if node.free >= size:
        assert 0 <= score_of(node, UnitRequest(size), strategy) <= MAX_SCORE == 9


@given(pool_nodes(), pool_nodes(), st.integers(1, 32), st.sampled_from(Strategy))
def test_a_preferred_node_never_scores_lower(
    one: PoolNode, other: PoolNode, size: int, strategy: Strategy
) -> None:
    if min(one.free, other.free) < size:
        return
    prefer = PREFERENCES[strategy]
    if prefer(one.bucket, size) <= prefer(other.bucket, size):
        assert score_of(one, UnitRequest(size), strategy) >= score_of(
            other, UnitRequest(size), strategy
        )


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        (Strategy.BIN_PACK, {"full": 9, "half": 5, "empty": 1}),
        (Strategy.SPREAD, {"full": 0, "half": 3, "empty": 7}),
        (Strategy.LEAST_FRAGMENTATION, {"full": 9, "half": 6, "empty": 2}),
    ],
)
def test_scores_by_strategy(strategy: Strategy, want: dict[str, int]) -> None:
    nodes = {"full": a_pool_node(8, used=7), "half": a_pool_node(8, used=4), "empty": a_pool_node()}
    assert {name: score_of(node, UnitRequest(1), strategy) for name, node in nodes.items()} == want


def test_a_view_has_every_node_of_the_pool_and_a_score_for_those_that_fit() -> None:
    allocation_state = some_allocation_state(
        devices=[*some_devices(1), *some_devices(4, "n2"), a_device("n3", pool="other")]
    )
    view = allocation_state.index.view(WHOLE, a_demand(2))
    assert {node: refusal is None for node, refusal in view.refusals.items()} == {
        N1: False,
        N2: True,
    }
    assert view.scores == {N2: 7}


def test_a_view_follows_what_happens_on_its_nodes() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    assert allocation_state.index.view(WHOLE, a_demand(2)).scores == {N1: 9}
    a_reserved_pod(allocation_state)
    assert allocation_state.index.view(WHOLE, a_demand(2)).scores == {}
    allocation_state.expire(at(120))
    assert allocation_state.index.view(WHOLE, a_demand(2)).scores == {N1: 9}


def test_a_view_follows_the_pools_strategy() -> None:
    allocation_state = some_allocation_state(devices=some_devices(8))
    assert allocation_state.index.view(WHOLE, a_demand(1)).scores == {N1: 2}
    allocation_state.index.replace_pool(a_pool(strategy=Strategy.SPREAD))
    assert allocation_state.index.view(WHOLE, a_demand(1)).scores == {N1: 7}


def test_a_node_that_lost_its_last_device_leaves_the_view() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    assert set(allocation_state.index.view(WHOLE, a_demand(1)).refusals) == {N1, N2}
    allocation_state.index.discard_device(a_device("n1").name)
    view = allocation_state.index.view(WHOLE, a_demand(1))
    assert (set(view.refusals), set(view.scores)) == ({N2}, {N2})


def test_a_pool_that_is_gone_has_an_empty_view() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.index.view(WHOLE, a_demand(1))
    allocation_state.index.discard_pool(WHOLE)
    assert allocation_state.index.view(WHOLE, a_demand(1)).refusals == {}


def test_equal_refusals_of_a_view_are_one_object() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    refusals = allocation_state.index.view(WHOLE, a_demand(2)).refusals
    assert refusals[N1] is refusals[N2] is not None


def test_more_sizes_than_are_kept_are_still_answered() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    fits = {
        size: N1 in allocation_state.index.view(WHOLE, a_demand(size)).scores
        for size in range(1, 100)
    }
    assert [size for size, does in fits.items() if does] == [1, 2]
    assert allocation_state.index.view(WHOLE, a_demand(1)).scores == {N1: 8}


def test_the_pods_own_reservation_counts_as_free_for_itself_only() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state, "mine", 2)
    pool = pool_of(allocation_state)
    assert allocation_state.reader.refusal_on(N1, pool, a_demand(2), uid=uid_of("mine")) is None
    for stranger in (uid_of("other"), None):
        refusal = allocation_state.reader.refusal_on(N1, pool, a_demand(2), uid=stranger)
        assert refusal is not None
        assert (refusal.free, refusal.reserved) == (0, 2)


def test_figures_of_a_refusal_leave_the_pods_own_reservation_out() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    a_reserved_pod(allocation_state, "mine", 1)
    a_reserved_pod(allocation_state, "other", 1)
    refusal = allocation_state.reader.refusal_on(
        N1, pool_of(allocation_state), a_demand(3), uid=uid_of("mine")
    )
    assert refusal is not None
    assert (refusal.free, refusal.reserved, refusal.total) == (2, 1, 3)


def test_a_reservation_elsewhere_does_not_help_here() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    a_reserved_pod(allocation_state, "mine", 1)
    a_reserved_pod(allocation_state, "other", 1)
    assert (
        allocation_state.reader.refusal_on(
            N1, pool_of(allocation_state), a_demand(1), uid=uid_of("mine")
        )
        is None
    )
    assert (
        allocation_state.reader.refusal_on(
            N2, pool_of(allocation_state), a_demand(1), uid=uid_of("mine")
        )
        is not None
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"pool": "other"}, id="went to another pool"),
        pytest.param({"node": "n2"}, id="went to another node"),
        pytest.param({"is_faulted": True}, id="faulted"),
    ],
)
def test_a_reserved_device_that_changed_is_no_room_for_its_holder(
    change: dict[str, object],
) -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state, "mine", 2)
    fields: dict[str, Any] = {"node": "n1", "pool": "whole", **change}
    allocation_state.index.replace_device(a_device(uuid="GPU-n1-0", **fields, name="n1-0"))
    refusal = allocation_state.reader.refusal_on(
        N1, pool_of(allocation_state), a_demand(2), uid=uid_of("mine")
    )
    assert refusal is not None
    assert refusal.free == 1


def test_a_node_outside_of_the_pool_says_so() -> None:
    refusal = some_allocation_state(devices=some_devices(1)).reader.refusal_on(
        NodeName("n9"), a_pool(), a_demand(1)
    )
    assert refusal == NodeRefusal(reason=NodeReason.NODE_NOT_IN_POOL, requested=1)


def test_the_index_tells_unknown_nodes_from_nodes_without_devices() -> None:
    index = some_allocation_state(devices=some_devices(1, "only-devices"), nodes=("bare",)).index
    indexed = [index.knows_node(NodeName(name)) for name in ("only-devices", "bare", "ghost")]
    assert indexed == [True, True, False]


def test_slices_are_counted_one_by_one() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=4), devices=some_devices(2, pool="slices")
    )
    a_reserved_pod(allocation_state, units=3, pool="slices")
    node = allocation_state.index.state(PoolName("slices")).node(N1)
    assert node is not None
    assert (node.total, node.reserved, node.free, node.partial) == (8, 3, 5, 5)

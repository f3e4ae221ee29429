"""What waiting pods could use is not held for an incoming pod: kube-scheduler's queue decides between pods."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import NodeName
from pool.admission_planner import Exhausted
from pool.admission_rules import Deferral, leaves_capacity
from pool.allocation_state import AllocationState
from pool.placement.planner import Placed
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    plan_reservation,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_demand, a_pod_facts, a_pool, at


def waiting(allocation_state, name: str = "w", units: int = 1, **changes) -> None:
    allocation_state.observe_pod(a_pod_facts(name, units, **changes), at(0))


def must_wait(allocation_state: AllocationState, units: int = 1, **about: Any) -> bool:
    plan = plan_reservation(allocation_state, a_demand(units), **about)
    return isinstance(plan, Exhausted) and plan.deferral is Deferral.WAITING_PODS


@pytest.mark.parametrize(("mine", "theirs"), [(0, 0), (0, 1_000_000), (5, 5), (-1, 0)])
def test_the_last_unit_is_left_to_a_pod_that_waits_and_comes_first(mine: int, theirs: int) -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    waiting(allocation_state, priority=theirs)
    assert must_wait(allocation_state, 1, priority=mine)


def test_a_pod_of_a_higher_priority_comes_before_those_that_wait() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    waiting(allocation_state, priority=4)
    assert isinstance(plan_reservation(allocation_state, a_demand(1), priority=5), Placed)


def test_what_is_more_than_they_could_use_may_be_reserved() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    for name in ("a", "b"):
        waiting(allocation_state, name)
    assert isinstance(plan_reservation(allocation_state, a_demand(1)), Placed)
    assert must_wait(allocation_state, 2)


def test_a_pod_that_fits_nowhere_keeps_nobody_from_reserving() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(2), *some_devices(2, "n2")])
    waiting(allocation_state, units=3)
    assert isinstance(plan_reservation(allocation_state, a_demand(2)), Placed)


def test_the_only_node_that_a_large_pod_fits_on_is_left_to_it() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(4), *some_devices(2, "n2")])
    waiting(allocation_state, units=4)
    assert must_wait(allocation_state, 1)


def test_a_pod_that_reserves_units_does_not_wait() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state)
    assert isinstance(plan_reservation(allocation_state, a_demand(1)), Placed)


def test_a_pod_that_is_gone_or_bound_does_not_wait() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    waiting(allocation_state, "gone")
    waiting(allocation_state, "bound")
    allocation_state.discard_pod(uid_of("gone"))
    assert must_wait(allocation_state, 2)
    commit_to(allocation_state, a_pod_facts("bound"))
    assert isinstance(plan_reservation(allocation_state, a_demand(1)), Placed)


def test_a_pod_that_waits_for_another_pool_is_not_in_the_way() -> None:
    allocation_state = some_allocation_state(a_pool(), a_pool("other"), devices=some_devices(1))
    waiting(allocation_state, pool="other")
    assert isinstance(plan_reservation(allocation_state, a_demand(1)), Placed)


def test_a_queue_of_incoming_pods_never_overtakes_a_pod_of_high_priority() -> None:
    """Otherwise whichever pod is created next gets the unit that came free."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("running", "GPU-n1-0"), at(0))
    waiting(allocation_state, "important", priority=1_000_000)
    allocation_state.discard_pod(uid_of("running"))
    for _ in range(20):
        assert must_wait(allocation_state, 1, namespace="newcomers")
    assert commit_to(allocation_state, a_pod_facts("important")).units == ("GPU-n1-0",)


class TestUnitsThatPreemptionFreed:
    def test_they_are_kept_for_a_pod_whose_reservation_is_elsewhere(self) -> None:
        """The pod holds units where it cannot go any more, and preempted on another node."""
        allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
        pod = a_reserved_pod(allocation_state, "preemptor", priority=10)
        reserved = allocation_state.ledger.of_pod(pod.uid)
        assert reserved is not None
        other = NodeName("n2" if reserved.node == "n1" else "n1")
        nominated = a_pod_facts("preemptor", priority=10, nominated_node=other)
        allocation_state.observe_pod(nominated, at(1))
        assert not isinstance(plan_reservation(allocation_state, a_demand(1)), Placed)

    def test_they_are_counted_once_for_a_pod_whose_reservation_is_there(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(2))
        a_reserved_pod(allocation_state, "preemptor")
        allocation_state.observe_pod(a_pod_facts("preemptor", nominated_node=NodeName("n1")), at(1))
        assert isinstance(plan_reservation(allocation_state, a_demand(1)), Placed)


sizes = st.integers(1, 4)


@given(
    pod_counts=st.lists(sizes, max_size=4),
    ahead=st.lists(sizes, max_size=3),
    requested=sizes,
    place=st.randoms(use_true_random=False),
)
def test_whatever_order_they_are_placed_in_no_waiting_pod_loses_its_place(
    pod_counts, ahead, requested, place
) -> None:
    """Beside an incoming pod that may hold, first-fit in any order places what it places without it."""
    counts = {size: pod_counts.count(size) for size in pod_counts}
    queue = {(0, size): ahead.count(size) for size in ahead}
    if not any(capacity >= requested for capacity in pod_counts) or not leaves_capacity(
        counts, queue, requested=requested, priority=0
    ):
        return
    left = list(pod_counts)
    left[place.choice([n for n, capacity in enumerate(pod_counts) if capacity >= requested])] -= (
        requested
    )
    fitting = [size for size in ahead if any(capacity >= size for capacity in pod_counts)]
    place.shuffle(fitting)
    for size in fitting:
        node = place.choice([n for n, capacity in enumerate(left) if capacity >= size])
        left[node] -= size

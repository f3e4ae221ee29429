"""Reservations for stored pods that await capacity, and nodes that are starting or leave."""

from typing import Any

import pytest

from api.foreign.core import NodeTaint, Toleration
from api.names import AGENT_NOT_READY_TAINT, NodeName, PodUid
from pool.admission_planner import Exhausted
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import Constraints, PodFacts, PodPhase, UnitlessPod
from pool.placement.planner import Placed, PlacementRefused
from pool.refusal import NodeReason
from pool.reservations.reservation import End, Reservation, ReservationPhase
from tests.support.allocation_state import (
    ANYWHERE,
    N1,
    a_bound_pod,
    a_placement_request,
    a_reserved_pod,
    commit_to,
    note_of,
    plan_reservation,
    pool_of,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import a_demand, a_node, a_pod_facts, at

STARTUP = NodeTaint(key=AGENT_NOT_READY_TAINT, effect="NoSchedule")
STARTING = a_node("n1", is_starting=True, taints=(STARTUP,))


def a_gated_pod(state: AllocationState, name: str = "p", units: int = 1, **more: Any) -> PodFacts:
    pod = a_pod_facts(name, units, awaits_capacity=True, **more)
    state.observe_pod(pod, at(0))
    return pod


def planned(state: AllocationState, pod: PodFacts, **ahead: Any) -> Placed | None:
    terms = {"ahead": {}, "now": 0.0, **ahead}
    return state.reader.admission.plan_stored(pool_of(state), pod, ANYWHERE, **terms)


def hold(
    state: AllocationState, pod: PodFacts, placed: Placed | None = None, *, seconds: float = 0
) -> Reservation | None:
    placed = placed or planned(state, pod)
    assert placed is not None
    request = a_placement_request(state, pod.demand, id_=f"h-{pod.uid}", name=pod.name)
    return state.hold(request, placed, uid=pod.uid, now=at(seconds))


def test_a_held_pod_does_not_wait_and_its_units_are_reserved_for_the_ttl_of_the_pool():
    state = some_allocation_state(devices=some_devices(1))
    pod = a_gated_pod(state)
    ttl_s = pool_of(state).ttl_s
    held = hold(state, pod, seconds=2)
    assert held is not None
    assert (held.phase, held.expires_at) == (ReservationPhase.CONFIRMED, 2 + ttl_s)
    assert state.reader.pods.waiting(pod.demand.resource) == []
    assert state.index.state(held.pool).capacity().reserved == 1
    assert state.expire(at(1.9 + ttl_s)) == []
    (ended,) = state.expire(at(2 + ttl_s))
    assert (ended.reservation.id, ended.end) == (held.id, End.EXPIRED)
    assert [item.uid for item in state.reader.pods.waiting(pod.demand.resource)] == [pod.uid]


def test_the_pod_is_bound_with_the_units_that_were_held():
    state = some_allocation_state(devices=some_devices(2))
    pod = a_gated_pod(state)
    held = hold(state, pod)
    assert held is not None
    state.observe_pod(a_pod_facts("p", reservation=note_of(held)), at(1))
    committed = commit_to(state, pod)
    assert (committed.id, committed.devices) == (held.id, held.devices)
    state.observe_pod(a_bound_pod("p", *held.units), at(1))
    assert len(state.ledger) == 0


@pytest.mark.parametrize(
    "now_seen",
    [
        pytest.param(a_pod_facts("p", is_gated=True), id="gated by others"),
        pytest.param(a_bound_pod("p", "GPU-n1-1"), id="bound"),
        pytest.param(a_pod_facts("p", phase=PodPhase.ENDED), id="ended"),
        pytest.param(None, id="gone"),
    ],
)
def test_a_pod_that_does_not_wait_any_more_is_not_held(now_seen: PodFacts | None):
    state = some_allocation_state(devices=some_devices(2))
    pod = a_gated_pod(state)
    placed = planned(state, pod)
    if now_seen is None:
        state.discard_pod(pod.uid)
    else:
        state.observe_pod(now_seen, at(0))
    assert hold(state, pod, placed) is None
    assert len(state.ledger) == 0


def test_a_pod_has_one_hold():
    state = some_allocation_state(devices=some_devices(2))
    pod = a_gated_pod(state)
    assert hold(state, pod) is not None
    assert hold(state, pod) is None
    assert len(state.ledger) == 1


def test_units_of_a_pod_that_nobody_has_seen_go_to_the_pod_that_exists():
    ended: list[Any] = []
    state = some_allocation_state(devices=some_devices(1), on_end=ended.append)
    pod = a_gated_pod(state)
    placed = planned(state, pod)
    assert placed is not None
    state.reserve(a_placement_request(state, a_demand(1), id_="r"), placed, at(0))
    assert hold(state, pod, placed) is not None
    assert [item.end for item in ended] == [End.TAKEN_OVER]


def test_a_hold_that_is_extended_ends_later_and_a_commitment_is_left_alone():
    state = some_allocation_state(devices=some_devices(1))
    pod = a_gated_pod(state)
    assert state.extend(pod.uid, 60, at(0)) is None
    hold(state, pod)
    ttl_s = pool_of(state).ttl_s
    extended = state.extend(pod.uid, 60, at(ttl_s - 1))
    assert extended is not None
    assert state.expire(at(ttl_s + 1)) == []
    commit_to(state, pod)
    assert state.extend(pod.uid, 60, at(ttl_s + 1)) is None


def test_pods_ahead_that_fit_keep_their_room_and_those_that_do_not_fit_keep_none():
    state = some_allocation_state(devices=some_devices(2))
    pod = a_gated_pod(state)
    assert planned(state, pod, ahead={(0, 2): 1}) is None
    assert planned(state, pod, ahead={(0, 1): 1}) is not None
    assert planned(state, pod, ahead={(0, 1): 2}) is None
    assert planned(state, pod, ahead={(0, 3): 5}) is not None


def test_it_is_known_whether_a_pod_has_our_gate():
    state = some_allocation_state(devices=some_devices(2))
    first = a_gated_pod(state)
    resource = first.demand.resource
    for _ in range(2):
        a_gated_pod(state)
        a_gated_pod(state, "q", is_gated=True)
    assert state.reader.pods.is_capacity_awaited(resource)
    hold(state, first)
    assert state.reader.pods.is_capacity_awaited(resource)
    state.observe_pod(a_pod_facts("p"), at(0))
    assert state.reader.pods.is_capacity_awaited(resource)
    state.discard_pod(a_pod_facts("q").uid)
    assert not state.reader.pods.is_capacity_awaited(resource)
    assert not state.reader.pods.is_capacity_awaited("gpu.deckhouse.io/other")


def test_units_on_a_node_without_the_cpu_of_a_pod_are_not_held_for_it():
    state = some_allocation_state(devices=some_devices(1), nodes=[a_node("n1", cpu_milli=64_000)])
    web = UnitlessPod(PodUid("web"), N1, ComputeResources(63_000, 0))
    state.observe_unitless(web)
    assert planned(state, a_gated_pod(state, "p", requests=ComputeResources(8_000, 0))) is None
    small = a_gated_pod(state, "q", requests=ComputeResources(1_000, 0))
    assert planned(state, small) is not None


# --- nodes that are starting --------------------------------------------------------------------


def test_a_node_that_is_starting_has_units_for_its_own_pods_only():
    """Weak points 7 and 13: nobody gets a unit before the pods that the node came for."""
    state = some_allocation_state(devices=some_devices(2), nodes=[STARTING])
    pool, everywhere = pool_of(state), Constraints(tolerations=[Toleration(operator="Exists")])
    pod = a_gated_pod(state)
    found = plan_reservation(state, a_demand(1), everywhere)
    assert isinstance(found, Exhausted)
    assert found.capacity.available == 0
    assert state.reader.admission.plan_stored(pool, pod, everywhere, ahead={}, now=0) is None
    refusal = state.index.view(pool.name, a_demand(1)).refusals[N1]
    assert refusal is not None
    assert refusal.reason is NodeReason.NODE_STARTING
    stranger = state.reader.plan_bind(N1, pool, a_demand(1), uid=a_pod_facts("stranger").uid)
    assert isinstance(stranger, PlacementRefused)

    placed = state.reader.plan_on(N1, pool, pod.demand)
    assert placed is not None
    held = hold(state, pod, placed)
    assert held is not None
    assert state.reader.refusal_on(N1, pool, pod.demand, uid=pod.uid) is None
    commit_to(state, pod)


def test_a_starting_node_has_no_room_for_more_than_its_units():
    state = some_allocation_state(devices=some_devices(2), nodes=[STARTING])
    pool = pool_of(state)
    first, second = a_gated_pod(state, "a", 2), a_gated_pod(state, "b", 1)
    placed = state.reader.plan_on(N1, pool, first.demand)
    assert hold(state, first, placed) is not None
    assert state.reader.plan_on(N1, pool, second.demand) is None
    assert state.reader.plan_on(NodeName("n2"), pool, second.demand) is None


def test_the_node_is_open_to_all_once_the_taint_is_gone():
    state = some_allocation_state(devices=some_devices(2), nodes=[STARTING])
    state.index.replace_node(a_node("n1"))
    assert isinstance(plan_reservation(state, a_demand(1)), Placed)


# --- nodes that leave -----------------------------------------------------------------------------


def test_a_node_that_leaves_has_units_for_nobody():
    state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(state)
    state.index.replace_node(a_node("n1", is_leaving=True))
    pool = pool_of(state)
    refusal = state.index.view(pool.name, a_demand(1)).refusals[N1]
    assert refusal is not None
    assert refusal.reason is NodeReason.NODE_LEAVING
    own = state.reader.plan_bind(N1, pool, pod.demand, uid=pod.uid)
    assert isinstance(own, PlacementRefused)
    assert state.reader.plan_on(N1, pool, a_demand(1)) is None


def test_a_node_whose_driver_is_upgraded_has_units_for_nobody_until_that_is_over():
    state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(state)
    state.index.replace_node(a_node("n1", is_withheld=True))
    pool = pool_of(state)
    refusal = state.index.view(pool.name, a_demand(1)).refusals[N1]
    assert refusal is not None
    assert refusal.reason is NodeReason.DRIVER_UPGRADE
    assert not refusal.reason.is_resolvable
    own = state.reader.plan_bind(N1, pool, pod.demand, uid=pod.uid)
    assert isinstance(own, PlacementRefused)
    state.index.replace_node(a_node("n1"))
    assert isinstance(plan_reservation(state, a_demand(1)), Placed)


def test_reservations_on_a_node_that_leaves_end_and_commitments_stay():
    state = some_allocation_state(devices=some_devices(3))
    waiting = a_reserved_pod(state, "waiting")
    gated = a_gated_pod(state, "gated")
    hold(state, gated)
    sent = a_reserved_pod(state, "sent")
    commit_to(state, sent)
    assert {item.reservation.uid for item in state.release_on(N1)} == {waiting.uid, gated.uid}
    assert state.release_on(N1) == []
    found = {item.uid for item in state.reader.pods.waiting(waiting.demand.resource)}
    assert found == {waiting.uid, gated.uid}
    assert [item.uid for item in state.ledger.all()] == [sent.uid]

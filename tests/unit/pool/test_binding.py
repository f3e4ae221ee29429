"""From a node that kube-scheduler chose to named units, and what becomes of the commitment."""

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from api.names import PoolName, ReservationId
from pool.allocation_reader import AlreadyBound
from pool.allocation_state import AllocationState
from pool.errors import InvariantViolatedError
from pool.model import Capacity, PodPhase
from pool.placement.planner import Placed, PlacementRefused
from pool.refusal import NodeReason
from pool.reservations.reservation import End, ReservationPhase
from tests.support.allocation_state import (
    N1,
    N2,
    a_bound_pod,
    a_placement_request,
    a_reserved_pod,
    commit_to,
    note_of,
    plan_reservation,
    pool_of,
    reserve,
    some_allocation_state,
    some_devices,
    uid_of,
    unit_ids,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, a_pool, at

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.model import Demand, PodFacts

WHOLE = PoolName("whole")


def bind_plan(
    allocation_state: AllocationState,
    pod: "PodFacts",
    node: "NodeName" = N1,
    demand: "Demand | None" = None,
) -> Placed | PlacementRefused | AlreadyBound:
    return allocation_state.reader.plan_bind(
        node, pool_of(allocation_state), demand or pod.demand, uid=pod.uid
    )


def phase(allocation_state: AllocationState, pod: "PodFacts") -> ReservationPhase | None:
    reservation = allocation_state.ledger.of_pod(pod.uid)
    return reservation.phase if reservation is not None else None


def capacity(allocation_state: AllocationState) -> Capacity:
    return allocation_state.index.state(WHOLE).capacity()


def a_committed_pod(
    allocation_state: AllocationState, name: str = "p", units: int = 1
) -> "PodFacts":
    pod = a_pod_facts(name, units)
    allocation_state.observe_pod(pod, at(0))
    commit_to(allocation_state, pod)
    return pod


def test_a_pod_gets_the_units_of_its_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    first = a_reserved_pod(allocation_state, "first", 2)
    second = a_reserved_pod(allocation_state, "second")
    allocation_state.discard_pod(first.uid)
    assert bind_plan(allocation_state, second) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-2")})


def test_a_pod_without_a_reservation_gets_free_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    reserve(allocation_state, a_demand(1))
    assert bind_plan(allocation_state, a_pod_facts()) == Placed(
        WHOLE, N1, {"c0": unit_ids("GPU-n1-1")}
    )


def test_a_pod_may_be_bound_to_another_node_than_it_was_reserved_on() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    pod = a_reserved_pod(allocation_state)
    commit_to(allocation_state, pod, "n2")
    assert capacity(allocation_state) == Capacity(total=2, reserved=1, available=1)
    assert allocation_state.index.claims.assumed.units(ReservationId("r-p")) == ("GPU-n2-0",)


def test_a_pod_that_asks_for_more_than_it_reserved_is_planned_again_with_its_own_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(allocation_state)
    plan = bind_plan(allocation_state, pod, demand=a_demand(2))
    assert plan == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-0", "GPU-n1-1")})


def test_a_node_where_others_reservation_too_much_refuses() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state, "other", 2)
    plan = bind_plan(allocation_state, a_pod_facts())
    assert isinstance(plan, PlacementRefused)
    assert (plan.node, plan.refusal.reason) == (N1, NodeReason.INSUFFICIENT_UNITS)


def test_an_intact_reservation_does_not_help_beside_an_unaccounted_pod() -> None:
    """The stranger may sit on the very device that is held."""
    allocation_state = some_allocation_state(devices=some_devices(3))
    pod = a_reserved_pod(allocation_state)
    allocation_state.observe_pod(a_bound_pod("stranger"), at(1))
    plan = bind_plan(allocation_state, pod)
    assert isinstance(plan, PlacementRefused)
    assert plan.refusal.reason is NodeReason.UNACCOUNTED_PODS


def test_a_commitment_takes_the_place_of_the_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(allocation_state)
    reservation = commit_to(allocation_state, pod, seconds=7)
    assert reservation.id == "r-p"
    assert (reservation.phase, reservation.created_at) == (ReservationPhase.COMMITTED, 0)
    assert capacity(allocation_state) == Capacity(total=2, reserved=1, available=1)


def test_a_commitment_takes_the_place_of_a_reservation_that_nobody_tied() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    reserved = reserve(allocation_state, a_demand(1))
    pod = a_pod_facts()
    placed = bind_plan(allocation_state, pod)
    assert isinstance(placed, Placed)
    request = a_placement_request(allocation_state, pod.demand, id_=reserved.id)
    allocation_state.commit(request, placed, uid=pod.uid, now=at(1))
    assert capacity(allocation_state) == Capacity(total=2, reserved=1, available=1)
    assert len(allocation_state.ledger) == 1


def test_a_pod_that_the_watch_has_not_shown_can_be_committed() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_pod_facts()
    commit_to(allocation_state, pod)
    assert phase(allocation_state, pod) is ReservationPhase.COMMITTED
    assert allocation_state.reader.pods.waiting(pod.demand.resource) == []


def test_a_commitment_does_not_expire() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    commit_to(allocation_state, pod)
    assert allocation_state.expire(at(1e6)) == []
    assert phase(allocation_state, pod) is ReservationPhase.COMMITTED


def test_an_observed_binding_retires_the_commitment() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_committed_pod(allocation_state)
    allocation_state.written(pod.uid)
    ended = allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(1))
    assert [item.end for item in ended] == [End.BOUND]
    assert len(allocation_state.ledger) == 0
    assert capacity(allocation_state) == Capacity(total=2, used=1, available=1)


def test_the_watch_may_be_faster_than_the_answer() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(1))
    allocation_state.written(pod.uid)
    allocation_state.mark_doubtful(pod.uid, at(1))
    assert allocation_state.retry(pod.uid) is None
    assert len(allocation_state.ledger) == 0


def test_a_refused_binding_frees_the_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    ended = allocation_state.release(pod.uid)
    assert ended is not None
    assert ended.end is End.RELEASED
    assert capacity(allocation_state) == Capacity(total=1, available=1)
    assert [item.name for item in allocation_state.reader.pods.waiting(pod.demand.resource)] == [
        "p"
    ]


def test_releasing_what_reserves_nothing_changes_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    assert allocation_state.release(uid_of("ghost")) is None
    pod = a_pod_facts()
    allocation_state.observe_pod(pod, at(0))
    assert allocation_state.release(pod.uid) is None
    assert [item.name for item in allocation_state.reader.pods.waiting(pod.demand.resource)] == [
        "p"
    ]


def test_a_doubtful_binding_keeps_its_units_and_its_node() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    pod = a_committed_pod(allocation_state)
    allocation_state.mark_doubtful(pod.uid, at(3))
    plan = bind_plan(allocation_state, pod, N2)
    assert isinstance(plan, AlreadyBound)
    assert plan.node == N1
    assert plan.reservation is not None
    assert (plan.reservation.phase, plan.reservation.observe_by) == (ReservationPhase.DOUBTFUL, 3)
    assert capacity(allocation_state).reserved == 1


def test_doubting_again_does_not_start_the_doubt_again() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    allocation_state.mark_doubtful(pod.uid, at(3))
    allocation_state.mark_doubtful(pod.uid, at(9))
    assert [item.observe_by for item in allocation_state.reader.ledger.unresolved()] == [3]


def test_an_answer_is_not_doubted_afterwards() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    allocation_state.written(pod.uid)
    allocation_state.mark_doubtful(pod.uid, at(3))
    assert phase(allocation_state, pod) is ReservationPhase.BOUND


def test_a_doubtful_binding_is_sent_again_with_the_very_same_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    pod = a_committed_pod(allocation_state, units=2)
    allocation_state.mark_doubtful(pod.uid, at(1))
    again = allocation_state.retry(pod.uid)
    assert again is not None
    assert (again.node, again.units, again.phase) == (
        N1,
        ("GPU-n1-0", "GPU-n1-1"),
        ReservationPhase.COMMITTED,
    )


def test_only_a_doubtful_binding_is_sent_again() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    assert allocation_state.retry(uid_of("ghost")) is None
    pod = a_committed_pod(allocation_state)
    assert allocation_state.retry(pod.uid) is None
    allocation_state.written(pod.uid)
    assert allocation_state.retry(pod.uid) is None


def test_a_binding_is_not_sent_again_while_another_pod_is_bound_with_one_of_its_units() -> None:
    """This replica did not lead for a while, and who did gave them away."""
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_committed_pod(allocation_state, units=2)
    allocation_state.mark_doubtful(pod.uid, at(1))
    allocation_state.observe_pod(a_bound_pod("other", "GPU-n1-1"), at(2))
    assert allocation_state.retry(pod.uid) is None
    assert phase(allocation_state, pod) is ReservationPhase.DOUBTFUL
    allocation_state.observe_pod(a_bound_pod("other", "GPU-n1-1", phase=PodPhase.ENDED), at(3))
    assert allocation_state.retry(pod.uid) is not None


def test_a_doubt_that_turns_out_well_is_a_binding() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    allocation_state.mark_doubtful(pod.uid, at(1))
    allocation_state.written(pod.uid)
    assert phase(allocation_state, pod) is ReservationPhase.BOUND


@pytest.mark.parametrize("transition", ["written", "mark_doubtful"])
def test_a_reservation_is_neither_written_nor_in_doubt(transition: str) -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    if transition == "written":
        allocation_state.written(pod.uid)
    else:
        allocation_state.mark_doubtful(pod.uid, at(1))
    assert phase(allocation_state, pod) is ReservationPhase.CONFIRMED


def test_unsettled_bindings_are_the_doubtful_and_the_unobserved_ones() -> None:
    allocation_state = some_allocation_state(devices=some_devices(4))
    pods = {
        name: a_committed_pod(allocation_state, name) for name in ("sent", "written", "doubtful")
    }
    allocation_state.written(pods["written"].uid)
    allocation_state.mark_doubtful(pods["doubtful"].uid, at(1))
    a_reserved_pod(allocation_state, "held")
    assert sorted(item.name for item in allocation_state.reader.ledger.unresolved()) == [
        "doubtful",
        "written",
    ]


@pytest.mark.parametrize("end", ["deleted", "failed"])
def test_a_pod_that_is_gone_frees_its_commitment(end: str) -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    if end == "deleted":
        allocation_state.discard_pod(pod.uid)
    else:
        allocation_state.observe_pod(a_pod_facts(phase=PodPhase.ENDED), at(1))
    assert capacity(allocation_state) == Capacity(total=1, available=1)
    assert len(allocation_state.ledger) == 0


def test_a_pod_that_is_gone_before_it_was_seen_frees_its_commitment() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_pod_facts()
    commit_to(allocation_state, pod)
    assert [item.end for item in allocation_state.discard_pod(pod.uid)] == [End.RELEASED]
    assert capacity(allocation_state) == Capacity(total=1, available=1)


def test_a_pending_event_does_not_undo_a_commitment() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    assert allocation_state.observe_pod(pod, at(1)) == []
    assert phase(allocation_state, pod) is ReservationPhase.COMMITTED


def test_a_bound_pod_is_where_the_watch_shows_it() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(0))
    assert bind_plan(allocation_state, a_pod_facts()) == AlreadyBound(N1, None)


def test_a_pod_that_failed_unbound_is_nowhere() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_pod_facts(phase=PodPhase.ENDED), at(0))
    assert allocation_state.reader.bound_to(uid_of("p")) is None


def test_a_pod_cannot_be_committed_twice() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_committed_pod(allocation_state)
    placed = Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-1")})
    with pytest.raises(InvariantViolatedError, match="bound or committed already"):
        allocation_state.commit(
            a_placement_request(allocation_state, pod.demand, id_="again"),
            placed,
            uid=pod.uid,
            now=at(1),
        )
    assert capacity(allocation_state) == Capacity(total=2, reserved=1, available=1)


def test_a_bound_pod_cannot_be_committed() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(0))
    placed = Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-1")})
    with pytest.raises(InvariantViolatedError, match="bound or committed already"):
        allocation_state.commit(
            a_placement_request(allocation_state, a_demand(1), id_="again"),
            placed,
            uid=uid_of("p"),
            now=at(1),
        )


def test_units_of_another_pod_cannot_be_committed() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    placed = bind_plan(allocation_state, a_pod_facts())
    assert isinstance(placed, Placed)
    a_reserved_pod(allocation_state, "other")
    with pytest.raises(InvariantViolatedError, match="takes units that are not free"):
        allocation_state.commit(
            a_placement_request(allocation_state, a_demand(1), id_="late"),
            placed,
            uid=uid_of("p"),
            now=at(1),
        )


def test_a_reservation_is_withdrawn_only_before_it_is_tied() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    reserved = reserve(allocation_state, a_demand(1))
    a_reserved_pod(allocation_state, "tied")
    ended = allocation_state.withdraw(reserved.id)
    assert ended is not None
    assert ended.end is End.RELEASED
    assert allocation_state.withdraw(ReservationId("r-tied")) is None
    assert allocation_state.withdraw(reserved.id) is None
    assert capacity(allocation_state) == Capacity(total=2, reserved=1, available=1)


def test_victims_make_room() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    for index in range(3):
        allocation_state.observe_pod(a_bound_pod(f"v{index}", f"GPU-n1-{index}"), at(0))
    request = (pool_of(allocation_state), a_demand(2))
    assert not allocation_state.reader.fits_without([uid_of("v0")], N1, request)
    assert allocation_state.reader.fits_without([uid_of("v0"), uid_of("v2")], N1, request)
    assert not allocation_state.reader.fits_without([uid_of("v0"), uid_of("v2")], N2, request)


def test_a_victim_on_a_faulted_device_makes_no_room() -> None:
    allocation_state = some_allocation_state(devices=[a_device(is_faulted=True)])
    allocation_state.observe_pod(a_bound_pod("v", "GPU-n1-0"), at(0))
    assert not allocation_state.reader.fits_without(
        [uid_of("v")], N1, (pool_of(allocation_state), a_demand(1))
    )


def test_a_victim_whose_binding_is_not_observed_yet_makes_room() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    victim = a_committed_pod(allocation_state)
    assert allocation_state.reader.fits_without(
        [victim.uid], N1, (pool_of(allocation_state), a_demand(1))
    )


def test_the_pods_own_reservation_is_room_for_it() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state)
    allocation_state.observe_pod(a_bound_pod("v", "GPU-n1-1"), at(0))
    request = (pool_of(allocation_state), a_demand(2))
    assert not allocation_state.reader.fits_without([uid_of("v")], N1, request)
    assert allocation_state.reader.fits_without([uid_of("v")], N1, request, uid=uid_of("p"))


def test_unaccounted_pods_make_room_only_when_all_of_them_go() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    for name in ("s", "t"):
        allocation_state.observe_pod(a_bound_pod(name), at(0))
    request = (pool_of(allocation_state), a_demand(1))
    assert not allocation_state.reader.fits_without([uid_of("s")], N1, request)
    assert allocation_state.reader.fits_without([uid_of("s"), uid_of("t")], N1, request)


def test_a_reservation_that_was_only_noted_is_committed_with_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1), nodes=("n2",))
    pod = a_pod_facts(reservation=note_of(reserve(allocation_state, a_demand(1))))
    allocation_state.tie(ReservationId("r"), pod.uid, name="p", now=at(0))
    allocation_state.index.replace_pool(a_pool(ttl_s=60))
    commit_to(allocation_state, pod)
    reservation = allocation_state.ledger.of_pod(pod.uid)
    assert reservation is not None
    assert (reservation.id, reservation.units) == ("r", ("GPU-n1-0",))


def test_a_commitment_to_no_node_is_a_bug() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_committed_pod(allocation_state)
    reservation = allocation_state.ledger.of_pod(pod.uid)
    assert reservation is not None
    allocation_state.ledger.move(replace(reservation, node=None))
    with pytest.raises(InvariantViolatedError, match="committed to no node"):
        allocation_state.reader.bound_to(pod.uid)


def test_free_units_that_cannot_be_allocated_are_a_bug() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    assert capacity(allocation_state).available == 1
    for entry in allocation_state.index.devices.all():
        entry.observed = 1
    with pytest.raises(InvariantViolatedError, match="cannot be allocated"):
        plan_reservation(allocation_state, a_demand(1))
    with pytest.raises(InvariantViolatedError, match="cannot be allocated"):
        bind_plan(allocation_state, a_pod_facts())

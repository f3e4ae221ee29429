"""From a node that kube-scheduler chose to named units, and what becomes of the commitment."""

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from api.names import PoolName, ReservationId
from pool.allocation_state import AllocationState, AlreadyBound
from pool.errors import InvariantViolatedError
from pool.model import Capacity, PodPhase
from pool.placement.planner import Placed, PlacementRefused
from pool.refusal import NodeReason
from pool.reservations.reservation import End, ReservationPhase
from tests.support.books import (
    N1,
    N2,
    a_bound_pod,
    a_held_pod,
    an_applicant,
    cards,
    commit_to,
    note_of,
    plan_hold,
    pool_of,
    some_books,
    take_hold,
    uid_of,
    unit_ids,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, a_pool, at

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.model import Demand, PodFacts

WHOLE = PoolName("whole")


def bind_plan(
    books: AllocationState, pod: "PodFacts", node: "NodeName" = N1, demand: "Demand | None" = None
) -> Placed | PlacementRefused | AlreadyBound:
    return books.plan_bind(node, pool_of(books), demand or pod.demand, uid=pod.uid)


def phase(books: AllocationState, pod: "PodFacts") -> ReservationPhase | None:
    reservation = books.ledger.of_pod(pod.uid)
    return reservation.phase if reservation is not None else None


def capacity(books: AllocationState) -> Capacity:
    return books.index.state(WHOLE).capacity()


def a_committed_pod(books: AllocationState, name: str = "p", units: int = 1) -> "PodFacts":
    pod = a_pod_facts(name, units)
    books.observe_pod(pod, at(0))
    commit_to(books, pod)
    return pod


def test_a_pod_gets_the_units_of_its_hold() -> None:
    books = some_books(devices=cards(3))
    first = a_held_pod(books, "first", 2)
    second = a_held_pod(books, "second")
    books.discard_pod(first.uid)
    assert bind_plan(books, second) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-2")})


def test_a_pod_without_a_hold_gets_free_units() -> None:
    books = some_books(devices=cards(2))
    take_hold(books, a_demand(1))
    assert bind_plan(books, a_pod_facts()) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-1")})


def test_a_pod_may_be_bound_to_another_node_than_it_was_held_on() -> None:
    books = some_books(devices=[*cards(1), *cards(1, "n2")])
    pod = a_held_pod(books)
    commit_to(books, pod, "n2")
    assert capacity(books) == Capacity(total=2, reserved=1, available=1)
    assert books.index.assumed_units(ReservationId("r-p")) == ("GPU-n2-0",)


def test_a_pod_that_asks_for_more_than_it_held_is_planned_anew_with_its_own_units() -> None:
    books = some_books(devices=cards(2))
    pod = a_held_pod(books)
    plan = bind_plan(books, pod, demand=a_demand(2))
    assert plan == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-0", "GPU-n1-1")})


def test_a_node_where_others_hold_too_much_refuses() -> None:
    books = some_books(devices=cards(2))
    a_held_pod(books, "other", 2)
    plan = bind_plan(books, a_pod_facts())
    assert isinstance(plan, PlacementRefused)
    assert (plan.node, plan.refusal.reason) == (N1, NodeReason.INSUFFICIENT_UNITS)


def test_an_intact_hold_does_not_help_beside_an_unaccounted_pod() -> None:
    """The stranger may sit on the very card that is held."""
    books = some_books(devices=cards(3))
    pod = a_held_pod(books)
    books.observe_pod(a_bound_pod("stranger"), at(1))
    plan = bind_plan(books, pod)
    assert isinstance(plan, PlacementRefused)
    assert plan.refusal.reason is NodeReason.UNACCOUNTED_PODS


def test_a_commitment_takes_the_place_of_the_hold() -> None:
    books = some_books(devices=cards(2))
    pod = a_held_pod(books)
    reservation = commit_to(books, pod, seconds=7)
    assert reservation.id == "r-p"
    assert (reservation.phase, reservation.created_at) == (ReservationPhase.COMMITTED, 0)
    assert capacity(books) == Capacity(total=2, reserved=1, available=1)


def test_a_commitment_takes_the_place_of_a_hold_that_nobody_tied() -> None:
    books = some_books(devices=cards(2))
    hold = take_hold(books, a_demand(1))
    pod = a_pod_facts()
    placed = bind_plan(books, pod)
    assert isinstance(placed, Placed)
    applicant = an_applicant(books, pod.demand, id_=hold.id)
    books.commit(applicant, placed, uid=pod.uid, now=at(1))
    assert capacity(books) == Capacity(total=2, reserved=1, available=1)
    assert len(books.ledger) == 1


def test_a_pod_that_the_watch_has_not_shown_can_be_committed() -> None:
    books = some_books(devices=cards(1))
    pod = a_pod_facts()
    commit_to(books, pod)
    assert phase(books, pod) is ReservationPhase.COMMITTED
    assert books.waiting(pod.demand.resource) == []


def test_a_commitment_does_not_expire() -> None:
    books = some_books(devices=cards(1))
    pod = a_held_pod(books)
    commit_to(books, pod)
    assert books.expire(at(1e6)) == []
    assert phase(books, pod) is ReservationPhase.COMMITTED


def test_an_observed_binding_retires_the_commitment() -> None:
    books = some_books(devices=cards(2))
    pod = a_committed_pod(books)
    books.written(pod.uid)
    ended = books.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(1))
    assert [one.end for one in ended] == [End.BOUND]
    assert len(books.ledger) == 0
    assert capacity(books) == Capacity(total=2, used=1, available=1)


def test_the_watch_may_be_faster_than_the_answer() -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    books.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(1))
    books.written(pod.uid)
    books.doubt(pod.uid, at(1))
    assert books.retry(pod.uid) is None
    assert len(books.ledger) == 0


def test_a_refused_binding_frees_the_units() -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    ended = books.release(pod.uid)
    assert ended is not None
    assert ended.end is End.RELEASED
    assert capacity(books) == Capacity(total=1, available=1)
    assert [one.name for one in books.waiting(pod.demand.resource)] == ["p"]


def test_releasing_what_holds_nothing_changes_nothing() -> None:
    books = some_books(devices=cards(1))
    assert books.release(uid_of("ghost")) is None
    pod = a_pod_facts()
    books.observe_pod(pod, at(0))
    assert books.release(pod.uid) is None
    assert [one.name for one in books.waiting(pod.demand.resource)] == ["p"]


def test_a_doubtful_binding_keeps_its_units_and_its_node() -> None:
    books = some_books(devices=[*cards(1), *cards(1, "n2")])
    pod = a_committed_pod(books)
    books.doubt(pod.uid, at(3))
    plan = bind_plan(books, pod, N2)
    assert isinstance(plan, AlreadyBound)
    assert plan.node == N1
    assert plan.reservation is not None
    assert (plan.reservation.phase, plan.reservation.observe_by) == (ReservationPhase.DOUBTFUL, 3)
    assert capacity(books).reserved == 1


def test_doubting_again_does_not_start_the_doubt_anew() -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    books.doubt(pod.uid, at(3))
    books.doubt(pod.uid, at(9))
    assert [one.observe_by for one in books.unsettled()] == [3]


def test_an_answer_is_not_doubted_afterwards() -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    books.written(pod.uid)
    books.doubt(pod.uid, at(3))
    assert phase(books, pod) is ReservationPhase.BOUND


def test_a_doubtful_binding_is_sent_again_with_the_very_same_units() -> None:
    books = some_books(devices=cards(3))
    pod = a_committed_pod(books, units=2)
    books.doubt(pod.uid, at(1))
    again = books.retry(pod.uid)
    assert again is not None
    assert (again.node, again.units, again.phase) == (
        N1,
        ("GPU-n1-0", "GPU-n1-1"),
        ReservationPhase.COMMITTED,
    )


def test_only_a_doubtful_binding_is_sent_again() -> None:
    books = some_books(devices=cards(2))
    assert books.retry(uid_of("ghost")) is None
    pod = a_committed_pod(books)
    assert books.retry(pod.uid) is None
    books.written(pod.uid)
    assert books.retry(pod.uid) is None


def test_a_binding_is_not_sent_again_while_another_pod_is_bound_with_one_of_its_units() -> None:
    """This replica did not lead for a while, and who did gave them away."""
    books = some_books(devices=cards(2))
    pod = a_committed_pod(books, units=2)
    books.doubt(pod.uid, at(1))
    books.observe_pod(a_bound_pod("other", "GPU-n1-1"), at(2))
    assert books.retry(pod.uid) is None
    assert phase(books, pod) is ReservationPhase.DOUBTFUL
    books.observe_pod(a_bound_pod("other", "GPU-n1-1", phase=PodPhase.ENDED), at(3))
    assert books.retry(pod.uid) is not None


def test_a_doubt_that_turns_out_well_is_a_binding() -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    books.doubt(pod.uid, at(1))
    books.written(pod.uid)
    assert phase(books, pod) is ReservationPhase.BOUND


@pytest.mark.parametrize("transition", ["written", "doubt"])
def test_a_hold_is_neither_written_nor_in_doubt(transition: str) -> None:
    books = some_books(devices=cards(1))
    pod = a_held_pod(books)
    if transition == "written":
        books.written(pod.uid)
    else:
        books.doubt(pod.uid, at(1))
    assert phase(books, pod) is ReservationPhase.CONFIRMED


def test_unsettled_bindings_are_the_doubtful_and_the_unobserved_ones() -> None:
    books = some_books(devices=cards(4))
    pods = {name: a_committed_pod(books, name) for name in ("sent", "written", "doubtful")}
    books.written(pods["written"].uid)
    books.doubt(pods["doubtful"].uid, at(1))
    a_held_pod(books, "held")
    assert sorted(one.name for one in books.unsettled()) == ["doubtful", "written"]


@pytest.mark.parametrize("end", ["deleted", "failed"])
def test_a_pod_that_is_gone_frees_its_commitment(end: str) -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    if end == "deleted":
        books.discard_pod(pod.uid)
    else:
        books.observe_pod(a_pod_facts(phase=PodPhase.ENDED), at(1))
    assert capacity(books) == Capacity(total=1, available=1)
    assert len(books.ledger) == 0


def test_a_pod_that_is_gone_before_it_was_seen_frees_its_commitment() -> None:
    books = some_books(devices=cards(1))
    pod = a_pod_facts()
    commit_to(books, pod)
    assert [one.end for one in books.discard_pod(pod.uid)] == [End.RELEASED]
    assert capacity(books) == Capacity(total=1, available=1)


def test_a_pending_event_does_not_undo_a_commitment() -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    assert books.observe_pod(pod, at(1)) == []
    assert phase(books, pod) is ReservationPhase.COMMITTED


def test_a_bound_pod_is_where_the_watch_shows_it() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(0))
    assert bind_plan(books, a_pod_facts()) == AlreadyBound(N1, None)


def test_a_pod_that_failed_unbound_is_nowhere() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_pod_facts(phase=PodPhase.ENDED), at(0))
    assert books.bound_to(uid_of("p")) is None


def test_a_pod_cannot_be_committed_twice() -> None:
    books = some_books(devices=cards(2))
    pod = a_committed_pod(books)
    placed = Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-1")})
    with pytest.raises(InvariantViolatedError, match="bound or committed already"):
        books.commit(an_applicant(books, pod.demand, id_="again"), placed, uid=pod.uid, now=at(1))
    assert capacity(books) == Capacity(total=2, reserved=1, available=1)


def test_a_bound_pod_cannot_be_committed() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(0))
    placed = Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-1")})
    with pytest.raises(InvariantViolatedError, match="bound or committed already"):
        books.commit(
            an_applicant(books, a_demand(1), id_="again"), placed, uid=uid_of("p"), now=at(1)
        )


def test_units_of_another_pod_cannot_be_committed() -> None:
    books = some_books(devices=cards(1))
    placed = bind_plan(books, a_pod_facts())
    assert isinstance(placed, Placed)
    a_held_pod(books, "other")
    with pytest.raises(InvariantViolatedError, match="takes units that are not free"):
        books.commit(
            an_applicant(books, a_demand(1), id_="late"), placed, uid=uid_of("p"), now=at(1)
        )


def test_a_hold_is_withdrawn_only_before_it_is_tied() -> None:
    books = some_books(devices=cards(2))
    hold = take_hold(books, a_demand(1))
    a_held_pod(books, "tied")
    ended = books.withdraw(hold.id)
    assert ended is not None
    assert ended.end is End.RELEASED
    assert books.withdraw(ReservationId("r-tied")) is None
    assert books.withdraw(hold.id) is None
    assert capacity(books) == Capacity(total=2, reserved=1, available=1)


def test_victims_make_room() -> None:
    books = some_books(devices=cards(3))
    for index in range(3):
        books.observe_pod(a_bound_pod(f"v{index}", f"GPU-n1-{index}"), at(0))
    applicant = (pool_of(books), a_demand(2))
    assert not books.can_place_without([uid_of("v0")], N1, applicant)
    assert books.can_place_without([uid_of("v0"), uid_of("v2")], N1, applicant)
    assert not books.can_place_without([uid_of("v0"), uid_of("v2")], N2, applicant)


def test_a_victim_on_a_faulted_card_makes_no_room() -> None:
    books = some_books(devices=[a_device(is_faulted=True)])
    books.observe_pod(a_bound_pod("v", "GPU-n1-0"), at(0))
    assert not books.can_place_without([uid_of("v")], N1, (pool_of(books), a_demand(1)))


def test_a_victim_whose_binding_is_not_observed_yet_makes_room() -> None:
    books = some_books(devices=cards(1))
    victim = a_committed_pod(books)
    assert books.can_place_without([victim.uid], N1, (pool_of(books), a_demand(1)))


def test_the_applicants_own_hold_is_room_for_it() -> None:
    books = some_books(devices=cards(2))
    a_held_pod(books)
    books.observe_pod(a_bound_pod("v", "GPU-n1-1"), at(0))
    applicant = (pool_of(books), a_demand(2))
    assert not books.can_place_without([uid_of("v")], N1, applicant)
    assert books.can_place_without([uid_of("v")], N1, applicant, uid=uid_of("p"))


def test_unaccounted_pods_make_room_only_when_all_of_them_go() -> None:
    books = some_books(devices=cards(2))
    for name in ("s", "t"):
        books.observe_pod(a_bound_pod(name), at(0))
    applicant = (pool_of(books), a_demand(1))
    assert not books.can_place_without([uid_of("s")], N1, applicant)
    assert books.can_place_without([uid_of("s"), uid_of("t")], N1, applicant)


def test_a_hold_that_was_only_noted_is_committed_with_units() -> None:
    books = some_books(devices=cards(1), nodes=("n2",))
    pod = a_pod_facts(reservation=note_of(take_hold(books, a_demand(1))))
    books.tie(ReservationId("r"), pod.uid, name="p", now=at(0))
    books.index.replace_pool(a_pool(ttl_s=60))
    commit_to(books, pod)
    reservation = books.ledger.of_pod(pod.uid)
    assert reservation is not None
    assert (reservation.id, reservation.units) == ("r", ("GPU-n1-0",))


def test_a_commitment_to_no_node_is_a_bug() -> None:
    books = some_books(devices=cards(1))
    pod = a_committed_pod(books)
    reservation = books.ledger.of_pod(pod.uid)
    assert reservation is not None
    books.ledger.move(replace(reservation, node=None))
    with pytest.raises(InvariantViolatedError, match="committed to no node"):
        books.bound_to(pod.uid)


def test_free_units_that_cannot_be_given_out_are_a_bug() -> None:
    books = some_books(devices=cards(1))
    assert capacity(books).available == 1
    for entry in books.index.devices():
        entry.observed = 1
    with pytest.raises(InvariantViolatedError, match="cannot be given out"):
        plan_hold(books, a_demand(1))
    with pytest.raises(InvariantViolatedError, match="cannot be given out"):
        bind_plan(books, a_pod_facts())

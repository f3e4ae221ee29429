"""Reservations by id and by pod, and their deadlines."""

import tracemalloc

import pytest
from msgspec.structs import replace

from api.names import NodeName, PodUid, PoolName, ReservationId, UnitId
from pool.errors import InvariantViolatedError
from pool.reservations.ledger import ReservationLedger
from pool.reservations.reservation import End, Reservation, ReservationPhase
from tests.support.allocation_state import unit_ids
from tests.support.builders import a_demand

UID = PodUid("u")
ID = ReservationId("r")


def a_reservation(id_: str = "r", **changes) -> Reservation:
    fields = {
        "id": ReservationId(id_),
        "pool": PoolName("whole"),
        "demand": a_demand(1),
        "namespace": "default",
        "node": NodeName("n1"),
        "devices": {"c0": (UnitId("G0"),)},
        "phase": ReservationPhase.HELD,
        "created_at": 0.0,
        "expires_at": 120.0,
        "observe_by": 5.0,
    }
    return Reservation(**{**fields, **changes})


def a_ledger(*reservations: Reservation) -> ReservationLedger:
    ledger = ReservationLedger()
    for reservation in reservations or (a_reservation(),):
        ledger.add(reservation)
    return ledger


def due(ledger: ReservationLedger, now: float) -> list[tuple[str, End]]:
    return [(reservation.id, end) for reservation, end in ledger.due(now)]


def test_a_reservation_is_found_by_id_and_by_its_pod() -> None:
    ledger = a_ledger(a_reservation(uid=UID))
    assert ledger.get(ID) is ledger.of_pod(UID) is next(iter(ledger.all()))
    assert len(ledger) == 1


def test_nothing_is_found_where_there_is_nothing() -> None:
    ledger = ReservationLedger()
    assert (ledger.get(ID), ledger.of_pod(UID), ledger.end(ID, End.EXPIRED)) == (None, None, None)


def test_an_ended_reservation_is_forgotten() -> None:
    ledger = a_ledger(a_reservation(uid=UID))
    ended = ledger.end(ID, End.RELEASED)
    assert ended is not None
    assert (ended.reservation.id, ended.end) == (ID, End.RELEASED)
    assert (ledger.get(ID), ledger.of_pod(UID), len(ledger)) == (None, None, 0)


def test_tying_gives_a_reservation_its_pod_and_new_time_to_be_observed() -> None:
    ledger = a_ledger()
    ledger.tie(ID, UID, name="p", observe_by=8.0)
    tied = ledger.of_pod(UID)
    assert tied is not None
    assert (tied.name, tied.observe_by, tied.phase) == ("p", 8.0, ReservationPhase.TIED)


def test_tying_twice_is_tying_once() -> None:
    ledger = a_ledger()
    ledger.tie(ID, UID, name="p", observe_by=8.0)
    before = ledger.get(ID)
    ledger.tie(ID, UID, name="p", observe_by=9.0)
    assert ledger.get(ID) is before


def test_confirming_ends_the_time_to_be_observed() -> None:
    ledger = a_ledger()
    ledger.confirm(ID, UID, "p")
    assert due(ledger, 119.9) == []
    assert due(ledger, 120.0) == [(ID, End.EXPIRED)]


@pytest.mark.parametrize(
    "phase", [phase for phase in ReservationPhase if phase.value not in {"held", "tied"}]
)
def test_confirming_changes_no_later_phase(phase: ReservationPhase) -> None:
    ledger = a_ledger(a_reservation(uid=UID, phase=phase))
    ledger.confirm(ID, UID, "p")
    confirmed = ledger.get(ID)
    assert confirmed is not None
    assert confirmed.phase is phase


def test_a_reservation_that_is_not_observed_in_time_ends() -> None:
    ledger = a_ledger()
    assert due(ledger, 4.9) == []
    assert due(ledger, 5.0) == [(ID, End.NOT_OBSERVED)]


def test_a_ttl_shorter_than_the_time_to_be_observed_counts() -> None:
    assert due(a_ledger(a_reservation(expires_at=3.0)), 5.0) == [(ID, End.EXPIRED)]


def test_what_is_due_stays_due_until_it_is_ended() -> None:
    ledger = a_ledger()
    assert due(ledger, 6.0) == due(ledger, 6.0) == [(ID, End.NOT_OBSERVED)]
    ledger.end(ID, End.NOT_OBSERVED)
    assert due(ledger, 6.0) == []


def test_a_reservation_with_several_deadlines_behind_it_is_due_once() -> None:
    ledger = a_ledger()
    ledger.tie(ID, UID, name="p", observe_by=6.0)
    assert due(ledger, 10.0) == [(ID, End.NOT_OBSERVED)]


@pytest.mark.parametrize("phase", [phase for phase in ReservationPhase if not phase.is_uncommitted])
def test_a_commitment_has_no_deadline(phase: ReservationPhase) -> None:
    assert due(a_ledger(a_reservation(uid=UID, phase=phase)), 1e9) == []


def test_a_reservation_that_was_committed_has_no_deadline() -> None:
    ledger = a_ledger(a_reservation(uid=UID))
    ledger.move(a_reservation(uid=UID, phase=ReservationPhase.COMMITTED))
    assert due(ledger, 1e9) == []


def test_reserves_that_ended_long_before_their_deadline_leave_nothing_behind() -> None:
    """Most pods are bound within a second; at 500 pods a second 120 s of deadlines are megabytes."""
    ledger = a_ledger(a_reservation("stays", expires_at=99.0, observe_by=99.0))
    tracemalloc.start()
    try:
        for number in range(20_000):
            ended = a_reservation(f"r{number}")
            ledger.add(ended)
            ledger.end(ended.id, End.BOUND)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 1_000_000
    assert [item.id for item, _ in ledger.due(99.0)] == ["stays"]


def test_the_next_deadline_is_the_earliest() -> None:
    ledger = a_ledger(a_reservation("a", observe_by=7.0), a_reservation("b", observe_by=6.0))
    assert ledger.next_deadline() == 6.0


def test_without_reserves_there_is_no_deadline() -> None:
    assert ReservationLedger().next_deadline() is None


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda ledger: ledger.add(a_reservation()), id="same id"),
        pytest.param(lambda ledger: ledger.add(a_reservation("s", uid=UID)), id="same pod"),
        pytest.param(
            lambda ledger: ledger.tie(ID, PodUid("v"), name="q", observe_by=1), id="tied to another"
        ),
        pytest.param(lambda ledger: ledger.confirm(ID, PodUid("v"), "q"), id="another pod's"),
        pytest.param(
            lambda ledger: ledger.tie(ReservationId("x"), UID, name="p", observe_by=1), id="ended"
        ),
        pytest.param(lambda ledger: ledger.move(a_reservation("x")), id="never was"),
    ],
)
def test_what_contradicts_the_lifecycle_is_a_bug(write) -> None:
    ledger = a_ledger()
    ledger.tie(ID, UID, name="p", observe_by=8.0)
    before = ledger.get(ID)
    with pytest.raises(InvariantViolatedError):
        write(ledger)
    assert ledger.get(ID) is ledger.of_pod(UID) is before
    assert len(ledger) == 1


def test_units_of_a_reservation_are_distinct_and_in_order() -> None:
    devices = {"i": unit_ids("G1", "G0"), "m": unit_ids("G0", "G2")}
    assert replace(a_reservation(), devices=devices).units == ("G1", "G0", "G2")


def test_a_unit_that_a_container_names_twice_is_one_unit() -> None:
    devices = {"c0": unit_ids("G1", "G0", "G1")}
    assert replace(a_reservation(), devices=devices).units == ("G1", "G0")


def test_only_what_was_not_sent_to_the_api_server_is_a_reservation() -> None:
    all_reserved = {ReservationPhase.HELD, ReservationPhase.TIED, ReservationPhase.CONFIRMED}
    assert {phase for phase in ReservationPhase if phase.is_uncommitted} == all_reserved


def test_a_reservation_names_its_pod_even_before_the_pod_has_a_name() -> None:
    assert a_reservation().pod == "default/*"
    assert a_reservation(name="p").pod == "default/p"

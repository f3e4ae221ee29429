"""A new process takes up from the API server what an earlier one held."""

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.annotations import ReservationNote
from api.clock import Instant
from pool.allocation_state import AllocationState
from pool.model import ContainerRole
from pool.reservations.reservation import ReservationPhase
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    some_allocation_state,
    some_devices,
    uid_of,
    unit_ids,
)
from tests.support.builders import (
    EPOCH,
    a_demand,
    a_device,
    a_pod_facts,
    a_pool,
    a_slice_pool,
    at,
)

if TYPE_CHECKING:
    from pool.reservations.reservation import Reservation

UID = uid_of("p")


def a_note(*units: str, **changes: Any) -> ReservationNote:
    note = ReservationNote(
        id="r",
        pool="whole",
        node="n1",
        devices={"c0": unit_ids(*(units or ("GPU-n1-0",)))},
        expires_at=EPOCH + dt.timedelta(seconds=120),
    )
    fields = {name: getattr(note, name) for name in note.__struct_fields__}
    return ReservationNote(**{**fields, **changes})


def restarted(
    note: ReservationNote | None,
    now: Instant | None = None,
    *,
    allocation_state: AllocationState | None = None,
) -> "Reservation | None":
    """What a fresh process has for a pending pod of one unit with this note."""
    allocation_state = allocation_state or some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_pod_facts(reservation=note), now or at(50))
    return allocation_state.ledger.of_pod(UID)


def test_a_reservation_that_the_pod_carries_is_taken_up_for_the_time_it_has_left() -> None:
    reservation = restarted(a_note())
    assert reservation is not None
    assert (reservation.id, reservation.units) == ("r", ("GPU-n1-0",))
    assert (reservation.phase, reservation.expires_at) == (ReservationPhase.CONFIRMED, 120)


def test_a_restored_reservation_expires_when_it_would_have() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    restarted(a_note(), allocation_state=allocation_state)
    assert allocation_state.expire(at(119)) == []
    assert len(allocation_state.expire(at(120))) == 1
    assert [pod.name for pod in allocation_state.reader.pods.waiting(a_pool().resource)] == ["p"]


def test_a_wall_clock_that_was_set_back_does_not_prolong_a_reservation_beyond_the_ttl() -> None:
    earlier = Instant(50, EPOCH - dt.timedelta(days=1))
    reservation = restarted(a_note(), earlier)
    assert reservation is not None
    assert reservation.expires_at == 50 + 120


def test_a_ttl_that_was_shortened_counts_for_restored_reserves() -> None:
    allocation_state = some_allocation_state(a_pool(ttl_s=10), devices=some_devices(1))
    reservation = restarted(a_note(), allocation_state=allocation_state)
    assert reservation is not None
    assert reservation.expires_at == 60


@pytest.mark.parametrize(
    "note",
    [
        pytest.param(None, id="no note"),
        pytest.param(a_note(expires_at=EPOCH + dt.timedelta(seconds=50)), id="expired"),
        pytest.param(a_note(expires_at=None), id="no time"),
        pytest.param(a_note(node="", devices={}), id="admitted without units"),
        pytest.param(a_note(pool="other"), id="of another pool"),
        pytest.param(a_note("GPU-n1-0", "GPU-n1-1"), id="more units than the pod asks for"),
        pytest.param(a_note(devices={"c1": unit_ids("GPU-n1-0")}), id="of another container"),
        pytest.param(a_note("GPU-gone"), id="of a device that is gone"),
        pytest.param(a_note(node="n2"), id="on a node that does not have the device"),
    ],
)
def test_a_note_that_is_no_good_any_more_leaves_the_pod_waiting(
    note: ReservationNote | None,
) -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    assert restarted(note, allocation_state=allocation_state) is None
    assert [pod.name for pod in allocation_state.reader.pods.waiting(a_pool().resource)] == ["p"]


def test_a_reservation_of_a_pool_that_is_gone_is_not_taken_up() -> None:
    assert (
        restarted(
            a_note(),
            allocation_state=some_allocation_state(a_pool("other"), devices=some_devices(1)),
        )
        is None
    )


def test_a_reservation_on_a_faulted_device_is_not_taken_up() -> None:
    assert (
        restarted(
            a_note(), allocation_state=some_allocation_state(devices=[a_device(is_faulted=True)])
        )
        is None
    )


def test_a_reservation_on_a_unit_in_use_is_not_taken_up() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    assert restarted(a_note(), allocation_state=allocation_state) is None


def test_a_reservation_on_a_unit_that_another_reservation_has_is_not_taken_up() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state, "first")
    assert restarted(a_note(), allocation_state=allocation_state) is None
    assert (
        restarted(a_note(), allocation_state=some_allocation_state(devices=some_devices(2)))
        is not None
    )


def test_a_reservation_of_which_the_units_are_cut_otherwise_now_is_not_taken_up() -> None:
    pool = a_slice_pool("whole", slices=2)
    assert (
        restarted(a_note(), allocation_state=some_allocation_state(pool, devices=some_devices(1)))
        is None
    )


def test_a_reservation_with_reused_units_is_taken_up_whole() -> None:
    demand = a_demand(1, 2, roles=(ContainerRole.INIT, ContainerRole.MAIN))
    devices = {"c0": unit_ids("GPU-n1-0"), "c1": unit_ids("GPU-n1-0", "GPU-n1-1")}
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = replace(a_pod_facts(), demand=demand, reservation=a_note(devices=devices))
    allocation_state.observe_pod(pod, at(0))
    reservation = allocation_state.ledger.of_pod(UID)
    assert reservation is not None
    assert reservation.devices == devices


def test_a_reservation_that_ended_in_this_process_is_not_taken_up_again() -> None:
    """The pod still carries the note, with time left on the wall clock."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    allocation_state.release(pod.uid)
    allocation_state.observe_pod(pod, at(2))
    assert allocation_state.ledger.of_pod(pod.uid) is None


def test_a_reservation_that_ran_out_before_its_pod_was_shown_is_taken_up_while_it_is_still_free() -> (
    None
):
    """A watch that was late by more than the time to be observed."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state, "late")
    fresh = some_allocation_state(devices=some_devices(1))
    fresh.observe_pod(pod, at(60))
    assert fresh.ledger.of_pod(pod.uid) is not None


def test_bound_pods_reservation_what_they_were_bound_with() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-1", reservation=a_note()), at(0))
    assert allocation_state.index.claims.observed.units(uid_of("b")) == ("GPU-n1-1",)
    assert len(allocation_state.ledger) == 0

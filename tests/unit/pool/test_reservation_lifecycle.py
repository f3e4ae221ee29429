"""reservations from admission to their end."""

from typing import TYPE_CHECKING

import pytest

from api.annotations import ReservationNote
from api.names import NodeName, PodUid, ReservationId
from pool.errors import InvariantViolatedError
from pool.model import PodPhase
from pool.placement.planner import Placed
from pool.reservations.reservation import End, ReservationPhase
from tests.support.allocation_state import (
    N1,
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
    from pool.reservations.reservation import Ended

RESOURCE = a_pool().resource
UID = uid_of("p")


def free(allocation_state) -> int:
    node = allocation_state.index.state(pool_of(allocation_state).name).node(N1)
    return node.free if node is not None else 0


def waiting(allocation_state) -> list[str]:
    return [pod.name for pod in allocation_state.reader.pods.waiting(RESOURCE)]


def ends(ended: "list[Ended]") -> list[tuple[str, End]]:
    return [(item.reservation.id, item.end) for item in ended]


def a_noted_pod(allocation_state, name: str = "p", **changes):
    """A pod that carries the note of a reservation just taken, not observed yet."""
    reserved = reserve(allocation_state, a_demand(1), id_=f"r-{name}")
    return a_pod_facts(name, reservation=note_of(reserved), **changes)


def test_a_reservation_takes_its_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    reserved = reserve(allocation_state, a_demand(2))
    assert (reserved.node, reserved.units, reserved.phase) == (
        N1,
        ("GPU-n1-0", "GPU-n1-1"),
        ReservationPhase.HELD,
    )
    assert free(allocation_state) == 1


def test_a_reservation_of_nothing_notes_only_that_the_pod_was_admitted() -> None:
    allocation_state = some_allocation_state()
    reserved = reserve(allocation_state, a_demand(1))
    assert (reserved.node, reserved.units, reserved.has_units) == (None, (), False)


def test_units_that_are_not_free_cannot_be_reserved() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    request = a_placement_request(allocation_state, a_demand(1), id_="late")
    plan = plan_reservation(allocation_state, a_demand(1))
    assert isinstance(plan, Placed)
    reserve(allocation_state, a_demand(1))
    with pytest.raises(InvariantViolatedError, match="late of pod default/p takes units"):
        allocation_state.reserve(request, plan, at(0))
    assert allocation_state.ledger.get(ReservationId("late")) is None


def test_a_pod_that_is_not_observed_in_time_loses_its_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1))
    assert allocation_state.expire(at(4.9)) == []
    assert ends(allocation_state.expire(at(5))) == [("r", End.NOT_OBSERVED)]
    assert free(allocation_state) == 1


def test_tying_gives_the_watch_new_time() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1))
    assert allocation_state.tie(ReservationId("r"), UID, name="p", now=at(3))
    assert allocation_state.expire(at(7.9)) == []
    assert ends(allocation_state.expire(at(8))) == [("r", End.NOT_OBSERVED)]


def test_an_observed_pod_keeps_its_reservation_for_the_pools_ttl() -> None:
    allocation_state = some_allocation_state(a_pool(ttl_s=60), devices=some_devices(1))
    a_reserved_pod(allocation_state)
    assert allocation_state.expire(at(59)) == []
    assert ends(allocation_state.expire(at(60))) == [("r-p", End.EXPIRED)]


def test_a_pod_whose_reservation_expired_waits() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_reserved_pod(allocation_state)
    assert waiting(allocation_state) == []
    allocation_state.expire(at(120))
    assert waiting(allocation_state) == ["p"]


def test_an_observed_pod_confirms_the_reservation_that_its_note_names() -> None:
    """The validating webhook may be skipped, or its answer lost."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_noted_pod(allocation_state), at(1))
    reservation = allocation_state.ledger.of_pod(UID)
    assert reservation is not None
    assert (reservation.phase, reservation.name) == (ReservationPhase.CONFIRMED, "p")


def test_a_reservation_that_ended_cannot_be_tied() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1))
    allocation_state.expire(at(5))
    assert not allocation_state.tie(ReservationId("r"), UID, name="p", now=at(5))


def test_a_reservation_of_another_pod_cannot_be_tied() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state, "other")
    assert not allocation_state.tie(ReservationId("r-other"), UID, name="p", now=at(0))


def test_a_pod_cannot_be_tied_to_a_second_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state)
    reserve(allocation_state, a_demand(1), id_="second")
    assert not allocation_state.tie(ReservationId("second"), UID, name="p", now=at(0))


def test_tying_again_changes_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_reserved_pod(allocation_state)
    assert allocation_state.tie(ReservationId("r-p"), UID, name="p", now=at(100))
    assert ends(allocation_state.expire(at(120))) == [("r-p", End.EXPIRED)]


def test_a_pod_that_was_admitted_with_nothing_waits() -> None:
    allocation_state = some_allocation_state()
    allocation_state.observe_pod(a_noted_pod(allocation_state), at(0))
    assert waiting(allocation_state) == ["p"]
    assert len(allocation_state.ledger) == 0


def test_an_admission_without_units_that_is_never_observed_ends_unnoticed() -> None:
    heard: list[Ended] = []
    allocation_state = some_allocation_state(on_end=heard.append)
    reserve(allocation_state, a_demand(1))
    assert allocation_state.expire(at(5)) == []
    assert (heard, len(allocation_state.ledger)) == ([], 0)


def test_a_pod_without_a_note_waits() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_pod_facts(), at(0))
    assert waiting(allocation_state) == ["p"]


def test_a_note_that_names_another_pods_reservation_gives_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    stolen = a_reserved_pod(allocation_state, "owner").reservation
    allocation_state.observe_pod(a_pod_facts("thief", reservation=stolen), at(0))
    assert allocation_state.ledger.of_pod(uid_of("thief")) is None
    assert waiting(allocation_state) == ["thief"]


def test_a_note_that_names_another_pods_reservation_and_free_units_gives_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state, "owner")
    note = ReservationNote(
        id="r-owner",
        pool="whole",
        node="n1",
        devices={"c0": unit_ids("GPU-n1-1")},
        expires_at=at(50).utc,
    )
    allocation_state.observe_pod(a_pod_facts("thief", reservation=note), at(0))
    assert allocation_state.ledger.of_pod(uid_of("thief")) is None


def test_a_deleted_pod_gives_its_reservation_back() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    assert ends(allocation_state.discard_pod(pod.uid)) == [("r-p", End.RELEASED)]
    assert (
        free(allocation_state),
        waiting(allocation_state),
        allocation_state.reader.pods.get(pod.uid),
    ) == (
        1,
        [],
        None,
    )


def test_a_pod_that_was_tied_but_never_observed_gives_its_reservation_back_when_deleted() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1))
    allocation_state.tie(ReservationId("r"), UID, name="p", now=at(0))
    assert ends(allocation_state.discard_pod(UID)) == [("r", End.RELEASED)]


def test_an_unknown_pod_is_discarded_without_effect() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1))
    assert allocation_state.discard_pod(PodUid("ghost")) == []
    assert free(allocation_state) == 0


def test_a_pod_that_failed_before_it_was_bound_gives_its_reservation_back() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_reserved_pod(allocation_state)
    assert ends(allocation_state.observe_pod(a_pod_facts(phase=PodPhase.ENDED), at(1))) == [
        ("r-p", End.RELEASED)
    ]
    assert (free(allocation_state), waiting(allocation_state)) == (1, [])


def test_a_pod_that_is_first_seen_when_it_has_failed_gives_its_reservation_back() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_noted_pod(allocation_state, phase=PodPhase.ENDED)
    assert ends(allocation_state.observe_pod(pod, at(1))) == [("r-p", End.RELEASED)]


def test_a_binding_ends_the_reservation_whoever_made_it() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_noted_pod(
        allocation_state, phase=PodPhase.BOUND, node=N1, devices={"c0": ("GPU-n1-0",)}
    )
    assert ends(allocation_state.observe_pod(pod, at(1))) == [("r-p", End.BOUND)]
    assert allocation_state.index.claims.observed.units(pod.uid) == ("GPU-n1-0",)


def test_an_older_event_that_comes_late_changes_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    old = a_reserved_pod(allocation_state)
    allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(1))
    assert allocation_state.observe_pod(old, at(2)) == []
    assert (free(allocation_state), waiting(allocation_state)) == (1, [])
    allocation_state.observe_pod(a_pod_facts(phase=PodPhase.ENDED), at(3))
    assert allocation_state.observe_pod(old, at(4)) == []
    assert (free(allocation_state), waiting(allocation_state)) == (2, [])


def test_the_same_event_twice_is_the_same_event_once() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(allocation_state)
    allocation_state.observe_pod(pod, at(1))
    generation = allocation_state.index.generation
    bound = a_bound_pod("p", "GPU-n1-0")
    assert ends(allocation_state.observe_pod(bound, at(1))) == [("r-p", End.BOUND)]
    assert allocation_state.observe_pod(bound, at(2)) == []
    assert allocation_state.index.generation == generation + 2


def test_a_bound_pod_without_a_node_cannot_be() -> None:
    with pytest.raises(InvariantViolatedError, match="default/p is bound to no node"):
        some_allocation_state().observe_pod(a_pod_facts(phase=PodPhase.BOUND), at(0))


def test_waiting_pods_come_by_priority_then_age_then_name() -> None:
    allocation_state = some_allocation_state()
    for name, priority, created in (
        ("d", 0, "2026-01-02T00:00:00Z"),
        ("c", 0, "2026-01-01T00:00:00Z"),
        ("b", 0, "2026-01-01T00:00:00Z"),
        ("a", 9, "2026-01-03T00:00:00Z"),
    ):
        allocation_state.observe_pod(a_pod_facts(name, priority=priority, created=created), at(0))
    assert waiting(allocation_state) == ["a", "b", "c", "d"]
    assert allocation_state.reader.pods.waiting("gpu.deckhouse.io/other") == []


def test_a_gated_pod_waits_once_its_gates_are_gone() -> None:
    allocation_state = some_allocation_state()
    allocation_state.observe_pod(a_pod_facts(is_gated=True, created="2026-01-01T00:00:00Z"), at(0))
    assert (waiting(allocation_state), allocation_state.reader.pods.waiting_count(RESOURCE)) == (
        [],
        0,
    )
    assert allocation_state.reader.pods.waiting_since(RESOURCE) == ""
    allocation_state.observe_pod(a_pod_facts(created="2026-01-01T00:00:00Z"), at(1))
    assert (waiting(allocation_state), allocation_state.reader.pods.waiting_count(RESOURCE)) == (
        ["p"],
        1,
    )
    assert allocation_state.reader.pods.waiting_since(RESOURCE) == "2026-01-01T00:00:00Z"


def test_a_gated_pod_whose_reservation_ends_does_not_wait() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_reserved_pod(allocation_state, is_gated=True)
    allocation_state.expire(at(120))
    assert (free(allocation_state), waiting(allocation_state)) == (1, [])


def test_a_committed_pod_does_not_wait_and_a_released_one_does() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_pod_facts()
    allocation_state.observe_pod(pod, at(0))
    commit_to(allocation_state, pod)
    assert waiting(allocation_state) == []
    allocation_state.observe_pod(pod, at(1))
    assert waiting(allocation_state) == []
    allocation_state.release(pod.uid)
    assert waiting(allocation_state) == ["p"]


def test_every_end_of_a_reservation_is_told_once() -> None:
    heard: list[Ended] = []
    allocation_state = some_allocation_state(devices=some_devices(4), on_end=heard.append)
    for name in ("expired", "bound", "deleted", "released"):
        a_reserved_pod(allocation_state, name)
    allocation_state.observe_pod(a_bound_pod("bound", "GPU-n1-1"), at(1))
    allocation_state.discard_pod(uid_of("deleted"))
    allocation_state.release(uid_of("released"))
    allocation_state.expire(at(120))
    assert ends(heard) == [
        ("r-bound", End.BOUND),
        ("r-deleted", End.RELEASED),
        ("r-released", End.RELEASED),
        ("r-expired", End.EXPIRED),
    ]


def test_the_oldest_reservation_of_a_pool_is_the_one_taken_first() -> None:
    allocation_state = some_allocation_state(
        a_pool(), a_pool("other"), devices=[*some_devices(2), a_device("n2", pool="other")]
    )
    assert allocation_state.reader.ledger.oldest() == {}
    reserve(allocation_state, a_demand(1, pool="other"), id_="other", seconds=9)
    for n in (2, 1, 3):
        reserve(allocation_state, a_demand(1), id_=f"r{n}", seconds=n)
    oldest = {
        str(pool): str(item.id) for pool, item in allocation_state.reader.ledger.oldest().items()
    }
    assert oldest == {"whole": "r1", "other": "other"}


def test_observed_pods_can_be_read() -> None:
    allocation_state = some_allocation_state()
    pod = a_pod_facts()
    allocation_state.observe_pod(pod, at(0))
    assert allocation_state.reader.pods.get(pod.uid) is pod
    assert list(allocation_state.reader.pods.all()) == [pod]


def test_a_pod_is_accounted_where_it_was_nominated_only_while_it_is_pending() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_pod_facts(nominated_node=NodeName("n1")), at(0))
    allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(1))
    assert len(allocation_state._pods.pending) == 0


def test_a_bound_pod_that_still_says_where_it_was_nominated_is_forgotten_whole() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0", nominated_node=N1), at(0))
    allocation_state.discard_pod(UID)
    assert free(allocation_state) == 1

"""A pod that one replica mutated and another validates, and pods that a replica without the lead mutates."""

import itertools
import json
from typing import Any

import pytest

from admission.pods.signature import is_signed, signed_text
from admission.webhooks import mutate_pod, validate_pod
from api.annotations import ReservationNote, decode_reservation
from api.names import PodUid, PoolName, ReservationId
from pool.reservations.reservation import ReservationPhase
from telemetry.reasons import RefusalReason
from tests.support.builders import at
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object, stored

RESERVATION = "gpu.deckhouse.io/reservation"


def an_admission_setup(**options: Any) -> AdmissionSetup:
    setup = AdmissionSetup(**options)
    setup.add_pool("whole")
    setup.add_node("n1", devices=2)
    return setup


@pytest.fixture
def first() -> AdmissionSetup:
    return an_admission_setup()


@pytest.fixture
def second() -> AdmissionSetup:
    return an_admission_setup(_numbers=itertools.count(100))  # no two replicas give the same id


def mutated_by(setup: AdmissionSetup, units: int = 1) -> dict[str, Any]:
    pod = a_pod_object(units)
    return stored(setup.ask(mutate_pod, pod).applied_to(pod))


def note_of(pod: dict[str, Any]) -> ReservationNote:
    note = decode_reservation(pod["metadata"]["annotations"][RESERVATION])
    assert note is not None
    return note


def held_by(setup: AdmissionSetup) -> int:
    return setup.allocation_state.ledger.unconfirmed_units(PoolName("whole"), "team-a")


def is_unknown(reply: Reply) -> bool:
    return (
        reply.answer.reason is RefusalReason.NOT_ADMITTED
        and "was not made for this pod; create the pod again" in reply.message
    )


def test_reservation_of_another_replica_is_taken_up_with_its_units_and_its_time(first, second):
    pod = mutated_by(first)
    second.now = at(3)

    assert second.ask(validate_pod, pod).allowed

    note = note_of(pod)
    reserved = second.allocation_state.ledger.get(ReservationId(note.id))
    assert reserved is not None
    assert (reserved.node, reserved.devices, reserved.phase) == (
        note.node,
        note.devices,
        ReservationPhase.TIED,
    )
    assert reserved.uid == PodUid(pod["metadata"]["uid"])
    assert reserved.expires_at == 120
    assert held_by(second) == 1


def test_pod_whose_units_are_taken_meanwhile_is_admitted_without_a_reservation(first, second):
    pod = mutated_by(first, units=2)
    mutated_by(second)

    assert second.ask(validate_pod, pod).allowed

    assert held_by(second) == 1


@pytest.mark.parametrize("seconds", [120, 3600])
def test_pod_whose_note_is_over_by_another_clock_is_admitted_without_a_reservation(
    first, second, seconds
):
    """Its two calls met replicas whose clocks differ by more than the pool's TTL."""
    pod = mutated_by(first)
    second.now = at(seconds)

    assert second.ask(validate_pod, pod).allowed

    assert len(second.allocation_state.ledger) == 0


def test_note_of_an_older_pod_is_replaced_at_mutation(first, second):
    """So its time guards nothing: what a pod brings along does not reach validation."""
    old = mutated_by(first)["metadata"]["annotations"]
    copied = a_pod_object(1, metadata={"annotations": old})
    second.now = at(3600)

    after = stored(second.ask(mutate_pod, copied).applied_to(copied))

    assert note_of(after).id != ReservationId(json.loads(old[RESERVATION])["id"])
    assert note_of(after).signature != json.loads(old[RESERVATION])["seal"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "other"),
        ("node", "n2"),
        ("devices", {"main": ("GPU-n1-1",)}),
        ("expiresAt", "2036-01-01T00:00:00Z"),
        ("seal", ""),
        ("seal", "00000000"),
    ],
)
def test_note_that_was_changed_on_the_way_is_refused(first, second, field, value):
    pod = mutated_by(first)
    note = json.loads(pod["metadata"]["annotations"][RESERVATION])
    pod["metadata"]["annotations"][RESERVATION] = json.dumps({**note, field: value})

    assert is_unknown(second.ask(validate_pod, pod))
    assert held_by(second) == 0


def test_note_of_another_namespace_is_refused(first, second):
    pod = mutated_by(first)
    pod["metadata"]["namespace"] = "team-b"
    assert is_unknown(second.ask(validate_pod, pod, namespace="team-b"))


def test_note_for_fewer_units_is_refused(first, second):
    pod = mutated_by(first)
    pod["spec"]["containers"] = a_pod_object(2)["spec"]["containers"]
    assert is_unknown(second.ask(validate_pod, pod))


def test_note_signed_with_another_key_is_refused(first):
    pod = mutated_by(first)
    assert is_unknown(an_admission_setup(key=b"another key").ask(validate_pod, pod))


def test_replica_that_does_not_lead_admits_and_reserves_nothing(first, second):
    second.may_reserve = False

    pod = mutated_by(second)

    note = note_of(pod)
    assert (note.pool, note.node, note.devices, note.expires_at) == ("whole", "", {}, None)
    assert second.ask(validate_pod, pod).allowed
    assert first.ask(validate_pod, pod).allowed
    assert held_by(first) == held_by(second) == 0


def test_replica_that_does_not_lead_validates_what_the_leader_reserves(first, second):
    second.may_reserve = False
    assert second.ask(validate_pod, mutated_by(first)).allowed
    assert held_by(second) == 0


def test_replica_that_does_not_lead_refuses_where_the_pool_does_and_nothing_is_free():
    setup = AdmissionSetup(may_reserve=False)
    setup.add_pool("whole", reservation={"whenExhausted": "Reject"})
    setup.add_node("n1", devices=1)
    pod = a_pod_object(1)
    assert setup.ask(mutate_pod, pod).allowed
    setup.allocation_state.index.discard_node("n1")  # type: ignore[arg-type]  # a node's name

    reply = setup.ask(mutate_pod, pod)

    assert reply.answer.reason is RefusalReason.INSUFFICIENT_CAPACITY


def test_replica_that_is_not_synced_admits_nothing(second):
    second.is_ready, second.may_reserve = False, False
    reply = second.ask(mutate_pod, a_pod_object(1))
    assert reply.answer.reason is RefusalReason.NOT_READY


def test_the_signature_is_the_last_member_of_a_note_that_is_written_as_every_note_is(first):
    """It is added to the text that it is made of."""
    pod = mutated_by(first)
    text = pod["metadata"]["annotations"][RESERVATION]
    note = note_of(pod)
    assert note.signature
    assert text == note.encode()
    assert list(json.loads(text))[-1] == "seal"


class NextNote(ReservationNote, frozen=True):
    """The note of the next version: fields are only added."""

    priority: int = 0


def test_reservation_of_a_replica_of_the_next_version_is_no_forgery(first, second):
    pod = mutated_by(first)
    note = note_of(pod)
    later = NextNote(id=note.id, pool=note.pool, node=note.node, devices=note.devices, priority=5)
    demand = first.allocation_state.reader.ledger.get(ReservationId(note.id)).demand
    context = first.context()
    text = signed_text(later, demand, namespace="team-a", context=context)
    assert is_signed(text, demand, namespace="team-a", context=context)
    changed = text.replace('"priority":5', '"priority":6')
    assert changed != text
    assert not is_signed(changed, demand, namespace="team-a", context=context)
    assert not is_signed(later.encode(), demand, namespace="team-a", context=context)

"""The last look: only pods that we mutated come in, and their reservation is tied to them."""

from typing import Any

import pytest

from admission.webhooks import mutate_pod, validate_pod
from api.names import PodUid
from pool.reservations.reservation import ReservationPhase
from telemetry.reasons import RefusalReason
from tests.support.builders import at
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object, stored

RESERVATION = "gpu.deckhouse.io/reservation"


@pytest.fixture
def setup() -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool()
    setup.add_node()
    return setup


@pytest.fixture
def pod(setup: AdmissionSetup) -> dict[str, Any]:
    """A pod that passed our mutation."""
    return stored(setup.ask(mutate_pod, a_pod_object()).applied_to(a_pod_object()))


def refused(
    setup: AdmissionSetup, pod: dict[str, Any], reason: RefusalReason, **review: Any
) -> Reply:
    reply = setup.ask(validate_pod, pod, **review)
    assert not reply.allowed
    assert reply.answer.reason is reason
    return reply


def test_the_reservation_is_tied_to_the_final_name_and_uid(setup):
    generated = a_pod_object(name="", metadata={"generateName": "train-"})
    mutated = setup.ask(mutate_pod, generated).applied_to(generated)

    assert setup.ask(validate_pod, stored(mutated, uid="u1", name="train-x7")).allowed

    reservation = setup.allocation_state.ledger.of_pod(PodUid("u1"))
    assert reservation is not None
    assert (reservation.name, reservation.phase) == ("train-x7", ReservationPhase.TIED)


def test_a_second_look_at_the_same_pod_changes_nothing(setup, pod):
    setup.ask(validate_pod, pod)
    before = list(setup.allocation_state.ledger.all())
    setup.now = at(1)

    assert setup.ask(validate_pod, pod, uid="another-call").allowed
    assert list(setup.allocation_state.ledger.all()) == before


MIRROR = {"kubernetes.io/config.mirror": "x"}


@pytest.mark.parametrize("is_labelled", [True, False])
def test_a_static_pod_that_its_kubelet_mirrors_is_left_alone(setup, is_labelled):
    labels = {"gpu.deckhouse.io/pool": "whole"} if is_labelled else {}
    pod = stored(a_pod_object(metadata={"annotations": MIRROR, "labels": labels}))
    kubelet = {"username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]}

    assert setup.ask(validate_pod, pod, userInfo=kubelet).allowed
    assert len(setup.allocation_state.ledger) == 0


@pytest.mark.parametrize("groups", [None, [], ["system:authenticated", "system:nodes-not"]])
def test_a_user_cannot_pass_a_pod_off_as_a_mirror_pod(setup, groups):
    pod = stored(a_pod_object(metadata={"annotations": MIRROR}))
    user = {"username": "alice", **({} if groups is None else {"groups": groups})}
    refused(setup, pod, RefusalReason.NOT_ADMITTED, userInfo=user)


def test_a_pod_that_waits_is_tied_too(setup):
    waiting = a_pod_object(spec={"nodeSelector": {"zone": "nowhere"}})

    mutated = setup.ask(mutate_pod, waiting).applied_to(waiting)

    assert setup.ask(validate_pod, stored(mutated)).allowed


def test_a_pod_that_asks_for_nothing_of_ours_passes():
    assert AdmissionSetup(is_ready=False).ask(validate_pod, stored(a_pod_object(gpus=None))).allowed


def test_a_pool_pod_that_was_not_mutated_is_refused_with_what_to_do(setup):
    reply = refused(setup, stored(a_pod_object()), RefusalReason.NOT_ADMITTED)

    assert "carries no reservation" in reply.message
    assert "another mutating webhook changed the pod after gpu-control-plane's" in reply.message


def test_a_reservation_that_cannot_be_read_is_none(setup, pod):
    pod["metadata"]["annotations"][RESERVATION] = "{"

    refused(setup, pod, RefusalReason.NOT_ADMITTED)


def test_a_reservation_of_another_pool_is_none(setup, pod):
    setup.add_pool("other")
    pod["spec"]["containers"] = a_pod_object(pool="other")["spec"]["containers"]

    refused(setup, pod, RefusalReason.NOT_ADMITTED)


def test_a_resource_that_no_pool_serves_was_not_admitted(setup, pod):
    pod["spec"]["containers"] = a_pod_object(pool="gone")["spec"]["containers"]

    refused(setup, pod, RefusalReason.NOT_ADMITTED)


def test_more_units_than_were_reserved_are_refused(setup, pod):
    pod["spec"]["containers"] = a_pod_object(2)["spec"]["containers"]

    reply = refused(setup, pod, RefusalReason.NOT_ADMITTED)

    assert "is for other resources" in reply.message


def test_a_pod_whose_reservation_ended_in_between_comes_in_without_one(setup, pod):
    setup.now = at(120)
    setup.allocation_state.expire(setup.now)

    assert setup.ask(validate_pod, pod).allowed
    assert len(setup.allocation_state.ledger) == 0


def test_a_reservation_that_nobody_gave_is_refused(setup, pod):
    note = pod["metadata"]["annotations"][RESERVATION].replace("r0", "r9")
    pod["metadata"]["annotations"][RESERVATION] = note

    reply = refused(setup, pod, RefusalReason.NOT_ADMITTED)

    assert "reservation r9" in reply.message
    assert "was not made for this pod; create the pod again" in reply.message


def test_a_reservation_of_another_namespace_is_refused(setup, pod):
    pod["metadata"]["namespace"] = "team-b"

    reply = refused(setup, pod, RefusalReason.NOT_ADMITTED)

    assert "another namespace" in reply.message


def test_a_reservation_is_for_one_pod(setup, pod):
    assert setup.ask(validate_pod, pod).allowed

    reply = refused(
        setup, {**pod, "metadata": {**pod["metadata"], "uid": "uid-2"}}, RefusalReason.NOT_ADMITTED
    )

    assert "belongs to another pod" in reply.message


def test_a_pod_has_one_reservation(setup, pod):
    assert setup.ask(validate_pod, pod).allowed
    other = setup.ask(mutate_pod, a_pod_object(name="other")).applied_to(a_pod_object(name="other"))

    refused(setup, stored(other), RefusalReason.NOT_ADMITTED)


@pytest.mark.parametrize("label", [None, "other"])
def test_the_label_must_be_as_admission_set_it(setup, pod, label):
    pod["metadata"]["labels"] = {} if label is None else {"gpu.deckhouse.io/pool": label}

    reply = refused(setup, pod, RefusalReason.NOT_ADMITTED)

    assert "label gpu.deckhouse.io/pool must be whole" in reply.message


@pytest.mark.parametrize("gpus", [1, None])
@pytest.mark.parametrize("key", ["gpu.deckhouse.io/devices", "gpu.deckhouse.io/woken"])
def test_nobody_else_writes_the_engines_annotations(setup, gpus, key):
    pod = stored(a_pod_object(gpus, metadata={"annotations": {key: "{}"}}))

    reply = refused(setup, pod, RefusalReason.FORGED_ANNOTATION)

    assert key in reply.message


def test_a_node_that_was_named_after_mutation_is_refused(setup, pod):
    pod["spec"]["nodeName"] = "n1"

    refused(setup, pod, RefusalReason.NODE_PRESET)


def test_a_second_pool_that_was_added_after_mutation_is_refused(setup, pod):
    pod["spec"]["containers"][0]["resources"]["limits"]["gpu.deckhouse.io/other"] = "1"

    refused(setup, pod, RefusalReason.MIXED_POOLS)


@pytest.mark.parametrize("field", ["name", "uid"])
def test_a_pod_without_its_final_identity_is_refused(setup, pod, field):
    del pod["metadata"][field]

    refused(setup, pod, RefusalReason.MALFORMED_REQUEST)


def test_nothing_is_tied_before_the_caches_are_synced(setup, pod):
    setup.is_ready = False

    refused(setup, pod, RefusalReason.NOT_READY)

    assert setup.allocation_state.ledger.of_pod(PodUid("uid-1")) is None


class TestDryRun:
    def test_a_rehearsed_pod_passes(self, setup):
        mutated = setup.ask(mutate_pod, a_pod_object(), dryRun=True).applied_to(a_pod_object())

        assert setup.ask(validate_pod, stored(mutated), dryRun=True).allowed

    def test_nothing_is_tied(self, setup, pod):
        assert setup.ask(validate_pod, pod, dryRun=True).allowed

        assert setup.allocation_state.ledger.of_pod(PodUid("uid-1")) is None

    def test_a_pod_that_was_not_mutated_is_refused(self, setup):
        refused(setup, stored(a_pod_object()), RefusalReason.NOT_ADMITTED, dryRun=True)

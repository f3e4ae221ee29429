"""The reservation that admission takes: what the pod's annotation says is what the allocation state has."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from admission.webhooks import mutate_pod, validate_pod
from api.annotations import ReservationNote, decode_reservation
from api.foreign.core import Pod
from api.names import NodeName, PodUid, PoolName, ReservationId
from pool.facts import pod_facts
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from telemetry.reasons import RefusalReason
from tests.support.builders import EPOCH, a_pod_facts, at
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object, stored

RESERVATION = "gpu.deckhouse.io/reservation"
ON_POOL_NODES = {"key": "pool.gpu.deckhouse.io/whole", "operator": "Exists"}
NAMED_N1 = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


def with_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": list(terms)}}}}


def an_admission_setup(devices: int = 2, **spec: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(**spec)
    setup.add_node(devices=devices)
    return setup


def note_of(pod: dict[str, Any]) -> ReservationNote:
    note = decode_reservation(pod["metadata"]["annotations"][RESERVATION])
    assert note is not None
    return msgspec.structs.replace(note, signature="")


def mutate(setup: AdmissionSetup, pod: dict[str, Any], **review: Any) -> dict[str, Any]:
    return setup.ask(mutate_pod, pod, **review).applied_to(pod)


def current(setup: AdmissionSetup, pod: dict[str, Any], **review: Any) -> None:
    """A pod that is admitted, and that the watch has delivered."""
    pod = {"status": {}, **stored(mutate(setup, pod, **review))}
    facts = pod_facts(msgspec.convert(pod, Pod))
    assert facts is not None
    setup.allocation_state.observe_pod(facts, setup.now)


def available(setup: AdmissionSetup) -> int:
    """What may be reserved for the next pod."""
    return sum(
        node.free for node in setup.allocation_state.index.state(PoolName("whole")).nodes().values()
    )


def annotated(pod: dict[str, Any], text: str) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "annotations": {RESERVATION: text}}}


def gated(**changes: Any) -> dict[str, Any]:
    return a_pod_object(spec={"schedulingGates": [{"name": "queue"}]}, **changes)


def test_the_annotation_is_the_reservation_that_the_allocation_state_keep():
    setup = an_admission_setup()

    note = note_of(mutate(setup, a_pod_object(2)))

    reservation = setup.allocation_state.ledger.get(ReservationId(note.id))
    assert reservation is not None
    assert (note.pool, note.node, note.devices) == ("whole", "n1", reservation.devices)
    assert note.devices == {"main": ("GPU-n1-0", "GPU-n1-1")}
    assert reservation.namespace == "team-a"


def test_a_reservation_says_when_it_ends():
    setup = an_admission_setup(reservation={"ttl": "90s"})

    assert note_of(mutate(setup, a_pod_object())).expires_at == EPOCH + dt.timedelta(seconds=90)


def test_a_reservation_is_taken_where_the_pod_may_go():
    setup = an_admission_setup(scheduling={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
    setup.add_node("n2", labels={"zone": "b"})

    pod = mutate(setup, a_pod_object(spec={"nodeSelector": {"zone": "b"}}))

    assert note_of(pod).node == "n2"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"nodeSelector": {"pool.gpu.deckhouse.io/whole": ""}}, id="by selector"),
        pytest.param(with_terms({"matchExpressions": [ON_POOL_NODES]}), id="by affinity"),
        pytest.param(
            with_terms(
                {"matchExpressions": [ON_POOL_NODES, {"key": "zone", "operator": "Exists"}]}
            ),
            id="by affinity and more",
        ),
        pytest.param(
            with_terms(
                {"matchExpressions": [ON_POOL_NODES], "matchFields": [NAMED_N1]},
            ),
            id="by affinity and name",
        ),
    ],
)
def test_the_pools_own_label_is_not_waited_for(spec):
    """A node is in the index before anybody has labelled it."""
    setup = AdmissionSetup()
    setup.add_pool()
    setup.add_node(labels={"zone": "a"})

    assert note_of(mutate(setup, a_pod_object(spec=spec))).node == "n1"


def test_an_alternative_that_shuts_out_the_pool_is_no_place_for_a_reservation():
    not_there = {**ON_POOL_NODES, "operator": "DoesNotExist"}
    elsewhere = {"key": "zone", "operator": "In", "values": ["b"]}
    spec = with_terms(
        {"matchExpressions": [not_there]}, {"matchExpressions": [ON_POOL_NODES, elsewhere]}
    )

    assert note_of(mutate(an_admission_setup(), a_pod_object(spec=spec))).node == ""


def test_a_pod_that_finds_nothing_free_gets_a_ticket_and_a_warning():
    setup = an_admission_setup()
    current(setup, a_pod_object(1, name="first"))

    reply = setup.ask(mutate_pod, a_pod_object(2))

    note = note_of(reply.applied_to(a_pod_object(2)))
    assert note == ReservationNote(id="r1", pool="whole")
    assert reply.warnings == ["the pod waits: GPU pool whole has 1 of 2 free, 2 wanted"]
    assert available(setup) == 1


def test_a_warning_says_when_it_is_not_the_number_of_free_units_that_is_missing():
    reply = an_admission_setup().ask(
        mutate_pod, a_pod_object(spec={"nodeSelector": {"zone": "nowhere"}})
    )

    assert reply.warnings == [
        "the pod waits: no node of GPU pool whole that it may go to has 1 free"
    ]


def test_warnings_stay_short_for_the_longest_names():
    setup = AdmissionSetup()
    name = "p" * 46
    setup.add_pool(name)
    setup.add_node(pool=name, devices=64)

    reply = setup.ask(
        mutate_pod, a_pod_object(64, pool=name, spec={"nodeSelector": {"zone": "nowhere"}})
    )

    (warning,) = reply.warnings
    assert len(warning) <= 120
    assert name in warning


def test_a_pool_that_rejects_says_the_figures():
    setup = an_admission_setup(reservation={"whenExhausted": "Reject"})
    current(setup, a_pod_object(1, name="first"))

    reply = setup.ask(mutate_pod, a_pod_object(2))

    assert reply.answer.reason is RefusalReason.INSUFFICIENT_CAPACITY
    assert reply.code == 403
    assert (
        "cannot reserve 2 units on one node for the pod now: 1 available, 1 reserved, 0 used of 2,"
        " and its largest node has 2" in reply.message
    )


def waits(setup: AdmissionSetup, units: int = 1, name: str = "waiting", **facts: Any) -> None:
    setup.allocation_state.observe_pod(a_pod_facts(name, units, **facts), setup.now)


def test_a_pod_behind_one_that_waits_gets_a_ticket_and_a_warning():
    setup = an_admission_setup(devices=1)
    waits(setup, priority=10)

    reply = setup.ask(mutate_pod, a_pod_object(spec={"priority": 10}))

    assert note_of(reply.applied_to(a_pod_object())) == ReservationNote(id="r0", pool="whole")
    assert reply.warnings == [
        "the pod waits: pods ahead of it wait for the free units of GPU pool whole"
    ]


def test_a_pod_of_a_higher_priority_reserves_what_others_wait_for():
    setup = an_admission_setup(devices=1)
    waits(setup, priority=10)

    pod = mutate(setup, a_pod_object(spec={"priority": 11}))

    assert note_of(pod).node == "n1"


@pytest.mark.parametrize("when_exhausted", ["Pend", "Reject"])
def test_units_reserved_for_a_pod_that_nobody_has_seen_keep_no_other_pod_out(when_exhausted: str):
    """A request to the webhook that no object follows, as after a refusal by a quota, reserves units and does no more."""
    setup = an_admission_setup(devices=1, reservation={"whenExhausted": when_exhausted})
    mutate(setup, a_pod_object(name="forged"))

    reply = setup.ask(mutate_pod, a_pod_object(), namespace="team-b")

    assert reply.allowed
    assert note_of(reply.applied_to(a_pod_object())) == ReservationNote(id="r1", pool="whole")
    assert reply.warnings == []


def test_a_reservation_that_was_taken_over_before_validation_leaves_its_pod_without_one():
    setup = an_admission_setup(devices=1)
    pod = stored(mutate(setup, a_pod_object()))
    waits(setup, name="other")
    pool = setup.allocation_state.index.pool_of("gpu.deckhouse.io/whole")
    other = setup.allocation_state.reader.pods.get(PodUid("uid-other"))
    assert pool is not None
    assert other is not None
    plan = setup.allocation_state.reader.plan_bind(
        NodeName("n1"), pool, other.demand, uid=other.uid
    )
    assert isinstance(plan, Placed)
    request = PlacementRequest(
        id=ReservationId("b"), pool=pool, demand=other.demand, namespace="team-b", name="other"
    )
    setup.allocation_state.commit(request, plan, uid=other.uid, now=setup.now)

    assert setup.ask(validate_pod, pod).allowed
    assert [str(item.id) for item in setup.allocation_state.ledger.all()] == ["b"]


def test_figures_name_the_unhealthy():
    setup = an_admission_setup(reservation={"whenExhausted": "Reject"})
    setup.add_node("n2", devices=1, is_ready=False)

    reply = setup.ask(mutate_pod, a_pod_object(2, spec={"nodeSelector": {"zone": "nowhere"}}))

    assert "2 available, 0 reserved, 0 used of 3 (1 unhealthy)" in reply.message


def test_a_gated_pod_gets_a_ticket_only_because_its_gate_may_stay_for_hours():
    setup = an_admission_setup()

    reply = setup.ask(mutate_pod, gated())

    assert note_of(reply.applied_to(gated())) == ReservationNote(id="r0", pool="whole")
    assert reply.warnings == []
    assert available(setup) == 2


def test_a_gated_pod_is_not_rejected_for_what_is_taken_now():
    setup = an_admission_setup(reservation={"whenExhausted": "Reject"})
    mutate(setup, a_pod_object(2, name="first"))

    assert setup.ask(mutate_pod, gated()).allowed


class TestComingAgain:
    """`reinvocationPolicy: IfNeeded`: the same pod, after another mutator changed it."""

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(a_pod_object(2), id="holding"),
            pytest.param(a_pod_object(2, spec={"nodeSelector": {"zone": "x"}}), id="waiting"),
            pytest.param(gated(), id="gated"),
        ],
    )
    def test_a_pod_keeps_what_it_has_and_nothing_changes(self, pod):
        setup = an_admission_setup()
        once = mutate(setup, pod)

        setup.now = at(0.25)
        reply = setup.ask(mutate_pod, once, uid="another-call")

        assert reply.patch == []
        assert len(setup.allocation_state.ledger) == 1

    def test_a_pod_that_lost_its_label_gets_only_that_again(self):
        setup = an_admission_setup()
        once = mutate(setup, a_pod_object())
        del once["metadata"]["labels"]

        reply = setup.ask(mutate_pod, once)

        assert [item["path"] for item in reply.patch] == ["/metadata/labels"]

    def test_a_changed_demand_is_planned_again_and_the_old_reservation_is_free_again(self):
        setup = an_admission_setup()
        once = mutate(setup, a_pod_object(1))
        once["spec"]["containers"] = a_pod_object(2)["spec"]["containers"]

        again = mutate(setup, once)

        assert note_of(again).id != note_of(once).id
        assert note_of(again).devices == {"main": ("GPU-n1-0", "GPU-n1-1")}
        assert [item.id for item in setup.allocation_state.ledger.all()] == [note_of(again).id]

    def test_a_changed_pool_is_planned_again(self):
        setup = an_admission_setup()
        setup.add_pool("other")
        once = mutate(setup, a_pod_object())
        once["spec"]["containers"] = a_pod_object(pool="other")["spec"]["containers"]
        del once["metadata"]["labels"]

        again = mutate(setup, once)

        assert note_of(again).pool == "other"
        assert available(setup) == 2

    def test_an_annotation_that_was_tampered_with_tells_the_truth_again(self):
        setup = an_admission_setup()
        once = mutate(setup, a_pod_object())
        forged = ReservationNote(id="r0", pool="whole", node="n9", devices={"main": ()})

        again = mutate(setup, annotated(once, forged.encode()))

        assert note_of(again) == note_of(once)

    def test_a_longer_life_is_not_taken_from_the_annotation(self):
        setup = an_admission_setup()
        once = mutate(setup, a_pod_object())
        note = note_of(once)
        assert note.expires_at is not None
        forged = ReservationNote(
            id=note.id,
            pool=note.pool,
            node=note.node,
            devices=note.devices,
            expires_at=note.expires_at + dt.timedelta(hours=1),
        )

        assert note_of(mutate(setup, annotated(once, forged.encode()))) == note

    def test_a_reservation_that_ended_in_between_is_taken_again(self):
        setup = an_admission_setup()
        once = mutate(setup, a_pod_object())
        setup.allocation_state.expire(at(60))

        assert note_of(mutate(setup, once)).id == "r1"

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="empty"),
            pytest.param("{", id="broken"),
            pytest.param('{"id":"no-such-id","pool":"whole"}', id="unknown"),
        ],
    )
    def test_a_forged_reservation_is_overwritten(self, text):
        setup = an_admission_setup()

        pod = mutate(setup, annotated(a_pod_object(), text))

        assert note_of(pod).id == "r0"
        assert setup.allocation_state.ledger.get(ReservationId("r0")) is not None

    def test_the_reservation_of_another_namespace_stays_there(self):
        setup = an_admission_setup()
        theirs = mutate(setup, a_pod_object(metadata={"namespace": "team-b"}))

        ours = mutate(
            setup, annotated(a_pod_object(), theirs["metadata"]["annotations"][RESERVATION])
        )

        assert note_of(ours).id != note_of(theirs).id
        assert len(setup.allocation_state.ledger) == 2

    def test_a_reservation_that_belongs_to_a_stored_pod_cannot_be_copied(self):
        setup = an_admission_setup()
        first = mutate(setup, a_pod_object())
        assert setup.ask(validate_pod, stored(first)).allowed

        copy = mutate(setup, {**first, "metadata": {**first["metadata"], "name": "copy"}})

        assert note_of(copy).id != note_of(first).id
        assert note_of(copy).devices != note_of(first).devices


class TestDryRun:
    """`kubectl apply --dry-run=server` sees what would happen, and nothing happens."""

    def test_nothing_is_reserved(self):
        setup = an_admission_setup()

        pod = mutate(setup, a_pod_object(2), dryRun=True)

        assert note_of(pod) == ReservationNote(id="dry-run", pool="whole")
        assert len(setup.allocation_state.ledger) == 0
        assert available(setup) == 2

    def test_the_warning_is_the_real_one(self):
        setup = an_admission_setup()
        current(setup, a_pod_object(2, name="first"))

        reply = setup.ask(mutate_pod, a_pod_object(), dryRun=True)

        assert reply.warnings == ["the pod waits: GPU pool whole has 0 of 2 free, 1 wanted"]

    def test_the_refusal_is_the_real_one(self):
        setup = an_admission_setup(reservation={"whenExhausted": "Reject"})
        current(setup, a_pod_object(2, name="first"))

        assert not setup.ask(mutate_pod, a_pod_object(), dryRun=True).allowed

    def test_its_output_comes_out_unchanged(self):
        setup = an_admission_setup()
        once = mutate(setup, a_pod_object(), dryRun=True)

        assert setup.ask(mutate_pod, once, dryRun=True).patch == []

    def test_the_reservation_of_a_real_pod_is_left_alone(self):
        setup = an_admission_setup()
        once = mutate(setup, a_pod_object())
        once["spec"]["containers"] = a_pod_object(2)["spec"]["containers"]

        setup.ask(mutate_pod, once, dryRun=True)

        assert setup.allocation_state.ledger.get(ReservationId("r0")) is not None

    def test_its_note_admits_no_real_pod(self):
        setup = an_admission_setup()
        pod = mutate(setup, a_pod_object(), dryRun=True)

        assert not setup.ask(validate_pod, stored(pod)).allowed

    def test_the_answer_is_logged_as_a_dry_run(self):
        reply = an_admission_setup().ask(mutate_pod, a_pod_object(), dryRun=True)

        assert reply.answer.facts["dry_run"] is True


def test_many_pods_never_reservation_one_unit_twice():
    setup = an_admission_setup(devices=8)

    replies: list[Reply] = [
        setup.ask(mutate_pod, a_pod_object(3, name=f"p{number}"), namespace=f"team-{number}")
        for number in range(5)
    ]

    given = [
        unit
        for number, reply in enumerate(replies)
        for units in note_of(reply.applied_to(a_pod_object(3, name=f"p{number}"))).devices.values()
        for unit in units
    ]
    assert len(given) == len(set(given)) == 6


def test_a_pending_pod_that_is_being_deleted_reserves_nothing_and_nobody_waits_behind_it() -> None:
    setup = AdmissionSetup()
    setup.add_pool()
    setup.add_node(devices=1)
    first = stored(setup.ask(mutate_pod, a_pod_object()).applied_to(a_pod_object()))
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
    for metadata in (first["metadata"], {**first["metadata"], **deleted}):
        facts = pod_facts(msgspec.convert({**first, "metadata": metadata, "status": {}}, Pod))
        assert facts is not None
        setup.allocation_state.observe_pod(facts, setup.now)
    answer = setup.ask(mutate_pod, a_pod_object())
    assert not answer.warnings
    annotations = answer.applied_to(a_pod_object())["metadata"]["annotations"]
    note = decode_reservation(annotations[RESERVATION])
    assert note is not None
    assert note.node == "n1"

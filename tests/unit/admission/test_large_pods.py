"""Pods that would cost more than one decision may: refused by what is wrong, before anything is done for them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admission.object_decoder import MAX_VALUES, UNCOUNTED_BYTES
from admission.pods.size_limits import MAX_ANNOTATIONS_BYTES, MAX_EXPRESSIONS
from admission.webhooks import (
    mutate_pod,
    validate_gpudevice,
    validate_gpupool,
    validate_pod,
)
from api.annotations import decode_reservation, encode_devices
from api.names import PoolName, ReservationId, UnitId
from pool.demand import MAX_CONTAINERS, MAX_LISTED_UNITS
from pool.node_affinity import MAX_COMPARISONS
from telemetry.reasons import RefusalReason
from tests.support.builders import a_device
from tests.support.reviews import (
    GPUDEVICE,
    GPUPOOL,
    AdmissionSetup,
    Reply,
    a_device_object,
    a_pod_object,
    a_pool_object,
    a_review,
    stored,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RESERVATION = "gpu.deckhouse.io/reservation"
MANY = MAX_VALUES * 4
SLICED = {"mode": "TimeSlice", "slicesPerDevice": 100, "slicePlacement": "SameDevice"}


def an_admission_setup(nodes: int = 1, devices: int = 2, **spec: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(**spec)
    for number in range(nodes):
        setup.add_node(f"n{number}", devices=devices, labels={"a": "5"})
    return setup


def sliced() -> AdmissionSetup:
    """A node of 16 devices of 100 slices, the largest there is."""
    setup = an_admission_setup(0, allocation=SLICED)
    setup.allocate("whole", **SLICED)
    setup.add_node("n1", devices=16)
    return setup


def too_large(setup: AdmissionSetup, pod: dict[str, Any]) -> Reply:
    reply = setup.ask(mutate_pod, pod)
    assert reply.answer.reason is RefusalReason.TOO_LARGE
    assert reply.code == 422
    assert len(setup.allocation_state.ledger) == 0
    return reply


def with_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def term(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def an_expression(operator: str, *values: str, key: str = "a") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def init_containers(count: int, units: int) -> list[dict[str, Any]]:
    resources = {"limits": {"gpu.deckhouse.io/whole": str(units)}}
    return [{"name": f"i{number}", "resources": resources} for number in range(count)]


def keys(count: int) -> dict[str, str]:
    return {f"key-{number:09}": "" for number in range(count)}


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("metadata.labels", {"metadata": {"labels": keys(MANY)}}),
        ("metadata.annotations", {"metadata": {"annotations": keys(MANY)}}),
        ("metadata.finalizers", {"metadata": {"finalizers": ["abcdef"] * MANY}}),
        ("metadata.ownerReferences", {"metadata": {"ownerReferences": [{}] * MANY}}),
        ("spec.containers", {"spec": {"containers": [{}] * MANY}}),
        ("spec.initContainers", {"spec": {"initContainers": [{}] * MANY}}),
        ("spec.nodeSelector", {"spec": {"nodeSelector": keys(MANY)}}),
        ("spec.affinity", {"spec": with_terms(term(an_expression("In", *["x"] * MANY)))}),
        ("spec.affinity", {"spec": with_terms(*[{}] * MANY)}),
        ("spec.tolerations", {"spec": {"tolerations": [{}] * MANY}}),
        ("spec.topologySpreadConstraints", {"spec": {"topologySpreadConstraints": [{}] * MANY}}),
        ("spec.volumes", {"spec": {"volumes": [{}] * MANY}}),
        ("spec.schedulingGates", {"spec": {"schedulingGates": [{}] * MANY}}),
    ],
)
def test_field_with_too_many_values_is_named_and_not_read(path, changes):
    reply = too_large(an_admission_setup(), a_pod_object(**changes))

    assert reply.message.startswith(f"TooLarge: {path} is too large: it has more than ")


def test_long_fields_that_nobody_reads_are_no_reason_to_refuse():
    fields: dict[str, Any] = {"managedFields": [{"fieldsV1": {"f:a": {"f:b": {}}}}] * MANY}
    aliases = [{"ip": "10.0.0.1", "hostnames": ["a"]}] * MANY

    assert (
        an_admission_setup()
        .ask(mutate_pod, a_pod_object(metadata=fields, spec={"hostAliases": aliases}))
        .allowed
    )


def test_large_pod_is_read_as_a_small_one():
    long_text = "x" * UNCOUNTED_BYTES
    pod = a_pod_object(2, metadata={"annotations": {"notes": long_text}, "labels": {"b": "c"}})

    after = an_admission_setup().ask(mutate_pod, pod).applied_to(pod)

    note = decode_reservation(after["metadata"]["annotations"][RESERVATION])
    assert note is not None
    assert note.devices == {"main": ("GPU-n0-0", "GPU-n0-1")}
    assert after["metadata"]["labels"] == {"b": "c", "gpu.deckhouse.io/pool": "whole"}


def test_key_that_comes_twice_hides_nothing():
    """The last one counts, for the bound and for what is decoded."""
    review = a_review(a_pod_object(spec={"tolerations": []}))
    first = msgspec.json.encode([{"key": "a"}] * MANY)
    setup = an_admission_setup()
    context = setup.context()

    hidden = mutate_pod(review.replace(b'"spec":{', b'"spec":{"tolerations":%b,' % first), context)
    current = mutate_pod(
        review.replace(b'"tolerations":[]', b'"tolerations":[],"tolerations":%b' % first), context
    )

    assert Reply(hidden).allowed
    assert current.reason is RefusalReason.TOO_LARGE


def test_large_pod_that_makes_no_sense_is_refused_with_the_field():
    pod = a_pod_object(metadata={"annotations": {"a": "x" * UNCOUNTED_BYTES}})
    pod["spec"]["tolerations"] = [{"key": 1}]

    reply = an_admission_setup().ask(mutate_pod, pod)

    assert reply.answer.reason is RefusalReason.MALFORMED_REQUEST
    assert "$.spec.tolerations[0].key" in reply.message


@pytest.mark.parametrize(
    ("webhook", "kind", "obj"),
    [
        (validate_gpupool, GPUPOOL, a_pool_object(access={"groups": ["g" * 9] * MANY})),
        (validate_gpudevice, GPUDEVICE, a_device_object(metadata={"labels": keys(MANY)})),
        (validate_gpudevice, GPUDEVICE, a_device_object(status={"links": [{}] * MANY})),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_objects_of_ours_have_bounds_too(webhook: Callable[..., Any], kind, obj, operation):
    reply = an_admission_setup().ask(webhook, obj, kind=kind, operation=operation, old=obj)

    assert reply.answer.reason is RefusalReason.TOO_LARGE


def test_more_containers_than_a_node_runs_are_refused():
    pod = a_pod_object(spec={"initContainers": init_containers(MAX_CONTAINERS, 1)})

    reply = too_large(an_admission_setup(), pod)

    assert "have 1001 containers, at most 1000 are allowed" in reply.message


def test_units_that_are_handed_on_again_and_again_are_refused():
    """The same 8 units, named 300 times: 28 MB of answer before there was a bound."""
    pod = a_pod_object(8, spec={"initContainers": init_containers(299, 8)})

    reply = too_large(sliced(), pod)

    assert f"request 2400 units in total, at most {MAX_LISTED_UNITS} are allowed" in reply.message


def test_all_units_of_the_largest_node_can_be_asked_for():
    assert sliced().ask(mutate_pod, a_pod_object(1600)).allowed


def test_an_init_container_may_hand_a_thousand_units_on():
    pod = a_pod_object(1000, spec={"initContainers": init_containers(1, 1000)})

    assert sliced().ask(mutate_pod, pod).allowed


def test_container_that_names_thousands_of_pools_is_read_no_further():
    limits = {f"gpu.deckhouse.io/p{number}": "1" for number in range(4_000)}
    pod = a_pod_object(spec={"initContainers": [{"name": "i", "resources": {"limits": limits}}]})

    reply = an_admission_setup().ask(mutate_pod, pod)

    assert reply.answer.reason is RefusalReason.MIXED_POOLS
    assert f"and {MAX_CONTAINERS - 4} more" in reply.message


def test_expressions_beyond_the_bound_are_refused_with_their_figure():
    term_of_one = term(an_expression("Exists"))

    at_most = an_admission_setup().ask(
        mutate_pod, a_pod_object(spec=with_terms(*[term_of_one] * MAX_EXPRESSIONS))
    )
    reply = too_large(
        an_admission_setup(), a_pod_object(spec=with_terms(*[term_of_one] * MAX_EXPRESSIONS, {}))
    )

    assert at_most.allowed
    assert (
        f"nodeAffinity.{REQUIRED} has 1001 expressions in all terms, at most 1000" in reply.message
    )


class TestTooMuchToCompare:
    """An affinity that cannot be compared with every node: a reservation is only a courtesy."""

    NODES = MAX_COMPARISONS // MAX_EXPRESSIONS + 10
    POD = a_pod_object(
        spec=with_terms(
            *[term(an_expression("Lt", "1"))] * (MAX_EXPRESSIONS - 1), term(an_expression("Exists"))
        )
    )

    def test_pod_is_admitted_without_units_and_told(self):
        impossible = term(an_expression("Exists", key="nowhere"))
        pod = a_pod_object(spec=with_terms(*[impossible] * MAX_EXPRESSIONS))
        setup = an_admission_setup(self.NODES, devices=1)

        reply = setup.ask(mutate_pod, pod)

        note = decode_reservation(reply.applied_to(pod)["metadata"]["annotations"][RESERVATION])
        assert note is not None
        assert note.node == ""
        assert reply.warnings == [
            "GPU pool whole reserves no units for the pod: its node affinity is too long to plan"
        ]

    def test_pod_that_finds_a_node_in_time_gets_its_units(self):
        setup = an_admission_setup(self.NODES, devices=1)

        reply = setup.ask(mutate_pod, self.POD)

        assert reply.warnings == []
        assert len(setup.allocation_state.ledger) == 1
        (reserved,) = setup.allocation_state.ledger.all()
        assert reserved.node == "n0"

    def test_pool_that_takes_no_pod_which_would_wait_says_what_is_too_long(self):
        impossible = term(an_expression("Exists", key="nowhere"))
        pod = a_pod_object(spec=with_terms(*[impossible] * MAX_EXPRESSIONS))
        setup = an_admission_setup(self.NODES, devices=1, reservation={"whenExhausted": "Reject"})

        reply = too_large(setup, pod)

        assert f"more than {MAX_COMPARISONS} comparisons" in reply.message

    def test_larger_pod_than_any_node_is_still_told_the_largest(self):
        pod = a_pod_object(2, spec={"affinity": self.POD["spec"]["affinity"]})

        reply = an_admission_setup(self.NODES, devices=1).ask(mutate_pod, pod)

        assert reply.answer.reason is RefusalReason.EXCEEDS_CAPACITY


class TestRoomForAnnotations:
    """A Binding adds annotations that the API server does not count; every later write of the pod does."""

    @staticmethod
    def a_pod(spare: int, units: int = 8) -> dict[str, Any]:
        """A pod whose annotations leave so many bytes."""
        return a_pod_object(
            units, metadata={"annotations": {"notes": "x" * (MAX_ANNOTATIONS_BYTES - 5 - spare)}}
        )

    def most(self, units: int) -> int:
        """What the sum says that we may write."""
        return 1_024 + 2 * (4 + len('"main"') + 47 * units)

    @pytest.mark.parametrize("units", [1, 8, 1600])
    def test_pod_that_leaves_just_enough_comes_in(self, units):
        assert sliced().ask(mutate_pod, self.a_pod(self.most(units), units)).allowed

    @pytest.mark.parametrize("units", [1, 8, 1600])
    def test_pod_that_leaves_a_byte_less_does_not(self, units):
        reply = too_large(sliced(), self.a_pod(self.most(units) - 1, units))

        assert "metadata.annotations have " in reply.message
        assert f"takes up to {self.most(units)}: Kubernetes takes 262144" in reply.message

    def test_characters_are_counted_as_they_are_stored(self):
        pod = a_pod_object(metadata={"annotations": {"notes": "\u00e9" * 131_000}})

        too_large(sliced(), pod)

    def test_what_we_write_ourselves_is_not_counted_twice(self):
        setup, pod = sliced(), self.a_pod(self.most(8))
        after = stored(setup.ask(mutate_pod, pod).applied_to(pod))

        assert setup.ask(mutate_pod, after).patch == []
        assert setup.ask(validate_pod, after).allowed

    def test_annotation_that_another_webhook_adds_later_is_seen_at_validation(self):
        setup, pod = sliced(), self.a_pod(self.most(8))
        after = stored(setup.ask(mutate_pod, pod).applied_to(pod))
        after["metadata"]["annotations"]["more"] = ""

        reply = setup.ask(validate_pod, after)

        assert reply.answer.reason is RefusalReason.TOO_LARGE

    def test_the_sum_covers_what_is_really_written(self):
        """The longest ids, names and expiry that there are."""
        setup = AdmissionSetup()
        setup.add_pool("p" * 46, allocation=SLICED)
        setup.allocate("p" * 46, **SLICED)
        uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
        node = "n" * 253
        setup.add_node(node, devices=0)
        setup.allocation_state.index.replace_device(a_device(node, 0, "p" * 46, uuid=uuid))
        pod = a_pod_object(
            100,
            "p" * 46,
            metadata={"annotations": {"notes": "x" * (MAX_ANNOTATIONS_BYTES - 5 - self.most(100))}},
        )

        after = setup.ask(mutate_pod, pod).applied_to(pod)["metadata"]["annotations"]

        reserved = setup.allocation_state.ledger.get(ReservationId("r0"))
        assert reserved is not None
        written = {
            **after,
            "gpu.deckhouse.io/devices": encode_devices(reserved.devices),
            "gpu.deckhouse.io/leader": f"{'h' * 253}-{'0' * 36}/{2**63 - 1}",
            "gpu.deckhouse.io/woken": "2026-01-01T00:00:00.000000Z",
        }
        seal_and_id = (43 - 8) + (24 - 2)  # of the tests are shorter
        taken = sum(len(key) + len(value) for key, value in written.items()) + seal_and_id
        assert MAX_ANNOTATIONS_BYTES - 500 < taken <= MAX_ANNOTATIONS_BYTES
        assert len(reserved.units) == 100
        assert setup.allocation_state.index.pool(PoolName("p" * 46)) is not None
        assert UnitId(f"{uuid}::99") in reserved.units

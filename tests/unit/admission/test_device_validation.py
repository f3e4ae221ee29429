"""Assignment of a device to a pool: everything that speaks against it, its cure, and the record of who decided."""

from typing import Any

import pytest

from admission.webhooks import mutate_gpudevice, validate_gpudevice
from api.names import ASSIGNMENT_ANNOTATION, DECIDED_BY_ANNOTATION, IGNORE_LABEL
from telemetry.reasons import RefusalReason
from tests.support.reviews import GPUDEVICE, AdmissionSetup, Reply, a_device_object


def ask(device: dict[str, Any], setup: AdmissionSetup | None = None, **review: Any) -> Reply:
    if setup is None:
        setup = AdmissionSetup()
        setup.add_pool()
    review = {"operation": "UPDATE", "old": a_device_object(None), "kind": GPUDEVICE, **review}
    return setup.ask(validate_gpudevice, device, **review)


def refused(device: dict[str, Any], setup: AdmissionSetup | None = None, **review: Any) -> str:
    reply = ask(device, setup, **review)
    assert not reply.allowed
    assert reply.answer.reason is RefusalReason.INVALID_ASSIGNMENT
    assert (
        reply.answer.facts["pool"]
        == device["metadata"]["annotations"]["gpu.deckhouse.io/assignment"]
    )
    return reply.message


def an_admission_setup(**spec: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(**spec)
    return setup


def test_a_device_that_the_pool_selects_may_be_assigned():
    reply = ask(a_device_object())

    assert reply.allowed
    assert reply.response["auditAnnotations"] == {"pool": "whole"}


def test_taking_an_assignment_away_is_always_possible():
    device = a_device_object(None, metadata={"labels": {"gpu.deckhouse.io/ignore": "true"}})

    assert ask(device, AdmissionSetup(is_ready=False), old=a_device_object("gone")).allowed


def test_a_device_whose_assignment_stays_is_not_judged_again():
    device = a_device_object("gone", status={"uuid": "", "managed": False})

    assert ask(device, AdmissionSetup(is_ready=False), old=a_device_object("gone")).allowed


def test_an_old_object_that_cannot_be_read_hides_nothing():
    assert not ask(a_device_object("gone"), old=None).allowed


def test_a_new_device_is_judged_too():
    assert "pool not found" in refused(a_device_object("gone"), operation="CREATE", old=None)


def test_deleting_is_always_possible():
    assert ask(None, operation="DELETE", old=a_device_object("gone")).allowed  # type: ignore[arg-type]


def test_an_assignment_waits_for_the_caches_that_know_the_pools():
    reply = ask(a_device_object(), AdmissionSetup(is_ready=False))

    assert reply.answer.reason is RefusalReason.NOT_READY


@pytest.mark.parametrize("value", ["true", "True"])
def test_an_ignored_device_is_refused(value):
    device = a_device_object(metadata={"labels": {"gpu.deckhouse.io/ignore": value}})

    device["metadata"]["annotations"] = {"gpu.deckhouse.io/assignment": "whole"}
    assert "it is ignored: remove its label gpu.deckhouse.io/ignore first" in refused(device)


def test_an_unmanaged_device_is_refused():
    assert "it is not managed" in refused(a_device_object(status={"managed": False}))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"uuid": ""}, "lacks uuid:"),
        ({"pci": {"vendor": "10de"}}, "lacks pci.address:"),
        ({"uuid": "", "pci": {}}, "lacks uuid and pci.address:"),
    ],
)
def test_a_device_that_is_not_known_well_enough_is_refused(status, expected):
    assert expected in refused(a_device_object(status=status))


def test_an_unknown_pool_is_refused_with_how_to_find_those_that_there_are():
    message = refused(a_device_object("gone"))

    assert message == (
        "InvalidAssignment: n1-0 cannot be assigned to pool gone:"
        " pool not found; `kubectl get gpupools` lists those there are"
    )


def test_a_text_that_cannot_name_a_pool_is_refused_as_such():
    assert "it is no valid pool name: only lower-case" in refused(a_device_object("Whole!"))


def test_a_pool_that_is_being_deleted_takes_no_devices():
    setup = an_admission_setup()
    setup.terminate("whole")

    assert "the pool is being deleted" in refused(a_device_object(), setup)


def test_a_mismatch_names_the_category_and_both_sides():
    setup = an_admission_setup(deviceSelector={"include": {"products": ["T4", "L4"]}})

    message = refused(a_device_object(), setup)

    assert (
        "deviceSelector.include.products is L4, T4, the device has"
        ' "NVIDIA A100-SXM4-80GB"' in message
    )


def test_a_mismatch_says_when_the_fact_is_not_known():
    setup = an_admission_setup(deviceSelector={"include": {"minMemoryMiB": 1000}})

    message = refused(a_device_object(status={"memoryMiB": 0}), setup)

    assert "include.minMemoryMiB is 1000, the device has no known value yet" in message


def test_an_excluded_device_is_told_what_excludes_it():
    setup = an_admission_setup(
        deviceSelector={"exclude": {"migCapable": True, "pciVendors": ["10DE"]}}
    )

    message = refused(a_device_object(), setup)

    assert (
        'deviceSelector.exclude.pciVendors is 10DE, the device has "10de"'
        ' and migCapable is true, the device has "true"' in message
    )


def test_a_device_on_a_node_that_the_pool_does_not_select_is_refused():
    setup = an_admission_setup(nodeSelector={"matchLabels": {"zone": "a"}})
    setup.add_node("n1", devices=0, labels={"zone": "b"})

    assert "nodeSelector does not select node n1" in refused(a_device_object(), setup)


def test_a_device_of_another_pool_may_be_moved_and_its_operator_is_told_how():
    """Lesson 7: the owner has it until it is free; nothing is taken from it."""
    reply = ask(
        a_device_object(status={"poolRef": {"name": "slices"}}), old=a_device_object("slices")
    )

    assert reply.allowed
    assert reply.warnings == ["pool slices has it until no pod uses it; then pool whole has it"]


def test_warning_is_no_longer_than_the_api_takes():
    setup = AdmissionSetup()
    setup.add_pool("w" * 46)
    device = a_device_object("w" * 46, status={"poolRef": {"name": "s" * 46}})

    (warning,) = ask(device, setup).warnings

    assert len(warning) <= 120


def test_of_a_new_device_only_what_can_be_known_is_judged():
    """The API server drops the status of an object that is created."""
    setup = an_admission_setup(deviceSelector={"include": {"products": ["T4"]}})
    device = a_device_object(status={"uuid": "", "product": "", "pci": {}})

    assert ask(device, setup, operation="CREATE", old=None).allowed
    assert "deviceSelector.include.products" in refused(device, setup)


def test_a_device_may_be_assigned_to_the_pool_that_owns_it():
    reply = ask(a_device_object(status={"poolRef": {"name": "whole"}}))

    assert reply.allowed
    assert reply.warnings == []


def test_all_faults_are_told_at_once():
    device = a_device_object("gone", status={"managed": False, "uuid": ""})

    assert refused(device).count(";") == 3


# --- who decided ---------------------------------------------------------------------------------


def decided(
    assignment: str | None = None, by: str | None = None, *, ignored: bool = False
) -> dict[str, Any]:
    annotations = {ASSIGNMENT_ANNOTATION: assignment, DECIDED_BY_ANNOTATION: by}
    metadata: dict[str, Any] = {
        "name": "n1-0",
        "annotations": {key: value for key, value in annotations.items() if value is not None},
        "labels": {IGNORE_LABEL: "true"} if ignored else {},
    }
    return a_device_object(metadata=metadata)


PATH = "/metadata/annotations/gpu.deckhouse.io~1decided-by"
SET = [{"op": "add", "path": PATH, "value": "alice"}]


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param(decided(), decided("whole"), SET, id="approved"),
        pytest.param(decided(), decided("whole", "bob"), SET, id="approved in another's name"),
        pytest.param(decided("a", "bob"), decided("b", "bob"), SET, id="moved"),
        pytest.param(decided("a", "bob"), decided(None, "bob"), SET, id="released"),
        pytest.param(decided("a", "bob"), decided("a", "bob", ignored=True), SET, id="drained"),
        pytest.param(None, decided("a", "bob"), SET, id="created with an assignment"),
        pytest.param(decided("a", "alice"), decided("b", "alice"), [], id="decided again"),
        pytest.param(
            decided("a", "bob"),
            decided("a", "eve"),
            [{"op": "add", "path": PATH, "value": "bob"}],
            id="record edited",
        ),
        pytest.param(
            decided("a", "bob"),
            decided("a"),
            [{"op": "add", "path": PATH, "value": "bob"}],
            id="record removed",
        ),
        pytest.param(
            decided(), decided(None, "eve"), [{"op": "remove", "path": PATH}], id="record invented"
        ),
        pytest.param(
            None, decided(None, "eve"), [{"op": "remove", "path": PATH}], id="created with a record"
        ),
        pytest.param(decided("a", "bob"), decided("a", "bob"), [], id="something else changed"),
    ],
)
def test_the_user_of_a_decision_is_recorded_and_nobody_else(old, new, patch):
    operation = "CREATE" if old is None else "UPDATE"
    setup = AdmissionSetup(is_ready=False)
    reply = setup.ask(
        lambda body, _: mutate_gpudevice(body), new, operation=operation, old=old, kind=GPUDEVICE
    )

    assert reply.allowed
    assert reply.patch == patch


def test_the_record_of_a_device_without_annotations_brings_them_along():
    device = decided(ignored=True)
    del device["metadata"]["annotations"]
    reply = AdmissionSetup().ask(
        lambda body, _: mutate_gpudevice(body),
        device,
        operation="UPDATE",
        old=decided(),
        kind=GPUDEVICE,
    )

    value = {DECIDED_BY_ANNOTATION: "alice"}
    assert reply.patch == [{"op": "add", "path": "/metadata/annotations", "value": value}]

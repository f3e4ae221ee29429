"""A pool's baseline: pods that could reach devices which they were not given."""

from typing import Any

import pytest

from admission.webhooks import mutate_pod, validate_pod
from telemetry.reasons import RefusalReason
from tests.support.reviews import AdmissionSetup, a_pod_object, a_review, stored


def volume(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "host", "hostPath": {"path": path}}]}


def main(**fields: Any) -> dict[str, Any]:
    return {"initContainers": [{"name": "first", **fields}]}


def visible(**value: Any) -> dict[str, Any]:
    return main(env=[{"name": "NVIDIA_VISIBLE_DEVICES", **value}])


FAULTS = (
    (main(securityContext={"privileged": True}), "privileged of container first"),
    ({"hostPID": True}, "hostPID"),
    ({"hostIPC": True}, "hostIPC"),
    ({"hostNetwork": True}, "hostNetwork"),
    ({"runtimeClassName": "nvidia-legacy"}, "runtimeClassName nvidia-legacy"),
    (visible(value="all"), "NVIDIA_VISIBLE_DEVICES of container first"),
    (visible(valueFrom={"fieldRef": {}}), "NVIDIA_VISIBLE_DEVICES of container first"),
    *(
        (volume(path), f"volume host (hostPath {path})")
        for path in (
            "/",
            "//dev/./",
            "/dev/nvidia0",
            "/dev/dri",
            "/var",
            "/run/containerd",
            "/proc/1",
        )
    ),
)


def setup(baseline: str | None) -> AdmissionSetup:
    made = AdmissionSetup()
    made.add_pool(**({} if baseline is None else {"podBaseline": baseline}))
    made.add_node()
    return made


@pytest.mark.parametrize(("spec", "fault"), FAULTS)
def test_a_pool_that_denies_names_what_to_leave_out_and_reserves_nothing(spec, fault):
    made = setup("Deny")
    reply = made.ask(mutate_pod, a_pod_object(spec=spec))
    assert reply.answer.reason is RefusalReason.POD_BASELINE
    assert reply.code == 403
    assert f"(spec.podBaseline): leave out {fault}" in reply.message
    assert len(made.allocation_state.ledger) == 0


def test_a_variable_whose_name_is_written_with_escapes_is_found():
    made = setup("Deny")
    review = a_review(a_pod_object(spec=visible(value="all")))
    hidden = review.replace(b"NVIDIA_VISIBLE", b"\\u004eVIDIA_VISIBLE")
    assert hidden != review
    assert mutate_pod(hidden, made.context()).reason is RefusalReason.POD_BASELINE


@pytest.mark.parametrize(
    "spec",
    [
        {},
        visible(value="void"),
        main(securityContext={"privileged": False}),
        {"runtimeClassName": "kata"},
        volume("/data/models"),
        volume("/dev/shm"),
        volume("/runs"),
    ],
)
def test_an_ordinary_pod_keeps_the_baseline(spec):
    assert setup("Deny").ask(mutate_pod, a_pod_object(spec=spec)).allowed


def test_what_a_later_webhook_adds_is_denied_or_warned_of_at_validation():
    for baseline, allowed, warnings in (
        (None, True, 0),
        ("Off", True, 0),
        ("Warn", True, 1),
        ("Deny", False, 0),
    ):
        made = setup(baseline)
        pod = stored(made.ask(mutate_pod, a_pod_object()).applied_to(a_pod_object()))
        pod["spec"]["hostPID"] = True
        reply = made.ask(validate_pod, pod)
        assert (reply.allowed, len(reply.warnings)) == (allowed, warnings)
        assert all("leave out hostPID" in warning for warning in reply.warnings)


@pytest.mark.parametrize("baseline", ["Off", "Deny"])
@pytest.mark.parametrize("spec", [{"hostPID": "yes"}, main(securityContext="privileged")])
def test_an_unreadable_field_is_denied_whatever_the_baseline(baseline, spec):
    reply = setup(baseline).ask(mutate_pod, a_pod_object(spec=spec))
    assert reply.answer.reason is RefusalReason.MALFORMED_REQUEST
    assert "hostPID" in reply.message or "securityContext" in reply.message


def test_an_unreadable_environment_is_denied_where_the_pool_denies():
    pod = a_pod_object(spec=main(env="NVIDIA_VISIBLE_DEVICES"))
    assert setup("Deny").ask(mutate_pod, pod).answer.reason is RefusalReason.MALFORMED_REQUEST
    assert setup("Warn").ask(mutate_pod, pod).allowed

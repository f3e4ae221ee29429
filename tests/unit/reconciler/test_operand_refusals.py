"""Refusals of operands' objects: object, field and cure are in the text, however long the answer is."""

import pytest

from kube.errors import ApiError, BadRequest, Cause, Forbidden, Invalid, NotFound, StatusDetails
from reconciler.node_software.built_in_operands import own_cure_of
from reconciler.runtime.object_applier import MAX_ANSWER, Refusal

LONG = "x" * 300


def refused(error: ApiError, *, state: str = "gpu-feature-discovery") -> Refusal:
    return Refusal(state, "DaemonSet", "gpu-feature-discovery", error)


def test_the_message_of_a_policy_is_whole():
    """The API server puts the names of policy and binding before it, and `str(error)` is cut."""
    details = StatusDetails(causes=[Cause(message="it binds another: delete it")])
    error = Forbidden(403, "Forbidden", LONG, details=details)
    want = "DaemonSet gpu-feature-discovery: 403 Forbidden: it binds another: delete it"
    assert refused(error).text == want


def test_an_invalid_field_is_named_with_the_section_of_the_settings():
    cause = Cause(reason="FieldValueInvalid", message="Invalid value: -1", field="spec.a")
    found = refused(Invalid(422, "Invalid", LONG, details=StatusDetails(causes=[cause])))
    assert found.text.endswith("422 Invalid: spec.a: Invalid value: -1")
    assert own_cure_of(found) == "Correct bootstrap.gfd in the settings of the server"


@pytest.mark.parametrize(
    ("state", "section"), [("state-dcgm-exporter", "dcgm_exporter"), ("telemetry", "dcgm_exporter")]
)
def test_sections_have_the_names_of_the_settings(state: str, section: str):
    cure = own_cure_of(refused(BadRequest(400, "BadRequest", "no"), state=state))
    assert f"bootstrap.{section} " in cure


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (NotFound(404, "NotFound", 'namespaces "gpu" not found'), "namespace"),
        (Forbidden(403, "Forbidden", "no right"), "`render rbac`"),
        (ApiError(429, "TooManyRequests", "later"), "again"),
    ],
)
def test_every_answer_has_a_cure(error: ApiError, word: str):
    found = refused(error)
    assert error.message in found.text
    assert word in own_cure_of(found)


def test_an_endless_answer_is_cut():
    details = StatusDetails(causes=[Cause(message=f"{LONG}\n" * 9)] * 9)
    text = refused(Invalid(422, "", "", details=details)).text
    assert len(text) < MAX_ANSWER + 100
    assert "\n" not in text

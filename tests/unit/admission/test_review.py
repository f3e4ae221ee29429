"""The wire: what is no question gets HTTP 400 in words, and every question gets its own answer."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission import webhooks
from api.text import MAX_MESSAGE_LENGTH, MAX_WARNING_LENGTH, listed, truncate
from telemetry.reasons import RefusalReason
from tests.support.reviews import GPUPOOL, AdmissionSetup, a_pod_object, a_review
from tests.support.strategies import json_values

WEBHOOKS = [
    pytest.param(webhooks.mutate_pod, id="mutate pods"),
    pytest.param(webhooks.validate_pod, id="validate pods"),
    pytest.param(webhooks.validate_gpupool, id="validate gpupools"),
    pytest.param(webhooks.validate_gpudevice, id="validate gpudevices"),
]


def without(review: bytes, *path: str) -> bytes:
    whole = msgspec.json.decode(review)
    part = whole
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return msgspec.json.encode(whole)


def with_value(review: bytes, value: object, *path: str) -> bytes:
    whole = msgspec.json.decode(review)
    part = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return msgspec.json.encode(whole)


REVIEW = a_review(a_pod_object())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(REVIEW[:-10], "truncated", id="truncated"),
        pytest.param(b"no json", "JSON is malformed", id="no json"),
        pytest.param(b'{"a":' + b"[" * 100_000, "recursion depth", id="nested without end"),
        pytest.param(b'{"kind":"\xff"}', "utf-8", id="no utf-8"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="a list"),
        pytest.param(
            without(REVIEW, "request"), "missing required field `request`", id="no request"
        ),
        pytest.param(
            with_value(REVIEW, None, "request"), "got `null` - at `$.request`", id="null request"
        ),
        pytest.param(
            without(REVIEW, "request", "uid"),
            "missing required field `uid` - at `$.request`",
            id="no uid",
        ),
        pytest.param(
            with_value(REVIEW, "", "request", "uid"), "at `$.request.uid`", id="empty uid"
        ),
        pytest.param(
            with_value(REVIEW, 7, "request", "uid"),
            "Expected `str`, got `int` - at `$.request.uid`",
            id="uid of a wrong type",
        ),
        pytest.param(
            with_value(REVIEW, "admission.k8s.io/v1beta1", "apiVersion"),
            "'admission.k8s.io/v1beta1' - at `$.apiVersion`",
            id="an older version",
        ),
        pytest.param(
            with_value(REVIEW, "Pod", "kind"), "'Pod' - at `$.kind`", id="another kind of body"
        ),
        pytest.param(
            with_value(REVIEW, "LOOK", "request", "operation"),
            "'LOOK' - at `$.request.operation`",
            id="unknown operation",
        ),
        pytest.param(
            with_value(REVIEW, GPUPOOL, "request", "kind"),
            "the review is about a gpu.deckhouse.io/v1alpha1 GPUPool; this path takes v1 Pod",
            id="another kind of object",
        ),
    ],
)
def test_a_broken_envelope_is_refused_with_the_exact_fault(body: bytes, expected: str):
    answer = webhooks.mutate_pod(body, AdmissionSetup().context())

    status = msgspec.json.decode(answer.body)
    assert answer.status == 400
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 400, "BadRequest")
    assert expected in status["message"]
    assert answer.outcome == "malformed"
    assert answer.reason is RefusalReason.MALFORMED_REQUEST


@pytest.mark.parametrize("webhook", WEBHOOKS)
@given(body=st.binary(max_size=200))
def test_no_bytes_make_a_webhook_raise(webhook, body):
    assert webhook(body, AdmissionSetup().context()).status == 400


@pytest.mark.parametrize("webhook", WEBHOOKS)
@given(obj=json_values(), old=json_values(), operation=st.sampled_from(["CREATE", "UPDATE"]))
def test_no_object_makes_a_webhook_raise(webhook, obj, old, operation):
    setup = AdmissionSetup()
    setup.add_pool()
    for kind in ("Pod", "GPUPool", "GPUDevice"):
        group = {"group": "", "version": "v1"} if kind == "Pod" else GPUPOOL
        body = a_review(
            obj, old=old, operation=operation, kind={**group, "kind": kind}, name="", namespace=""
        )
        assert webhook(body, setup.context()).status in {200, 400}


def test_an_object_that_cannot_be_read_is_denied_at_its_field():
    pod = a_pod_object(
        spec={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": 1}]}
                        ]
                    }
                }
            }
        }
    )

    reply = AdmissionSetup().ask(webhooks.mutate_pod, pod)

    assert not reply.allowed
    assert reply.code == 422
    assert reply.message.startswith("MalformedRequest: the object cannot be read as v1 Pod")
    assert "at `$.spec.affinity.nodeAffinity" in reply.message


@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_an_object_without_a_part_that_a_patch_needs_is_denied(part):
    pod = a_pod_object()
    del pod[part]

    reply = AdmissionSetup().ask(webhooks.mutate_pod, pod, namespace="team-a")

    assert f"missing required field `{part}`" in reply.message


@pytest.mark.parametrize("webhook", WEBHOOKS[:2])
@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
def test_pods_are_judged_at_creation_only(webhook, operation):
    pod = a_pod_object(pool="no-such-pool", metadata={"finalizers": []})

    reply = AdmissionSetup().ask(webhook, pod, operation=operation, old=pod)

    assert reply.allowed
    assert reply.patch == []


def test_the_answer_carries_the_uid_of_its_question():
    reply = AdmissionSetup().ask(webhooks.mutate_pod, a_pod_object(gpus=None), uid="another-uid")

    assert reply.response == {"uid": "another-uid", "allowed": True}
    assert reply.answer.outcome == "allowed"


def test_a_denial_is_http_200_with_a_code_a_kubernetes_reason_and_ours_in_front_of_the_text():
    reply = AdmissionSetup().ask(webhooks.mutate_pod, a_pod_object(gpus="0.5"))

    assert reply.answer.status == 200
    assert reply.answer.outcome == "denied"
    assert reply.answer.reason is RefusalReason.BAD_QUANTITY
    status = reply.response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith('BadQuantity: container "main" asks for "0.5"')


def test_clients_are_told_to_try_again_while_the_control_plane_starts():
    setup = AdmissionSetup(is_ready=False)
    setup.add_pool()

    reply = setup.ask(webhooks.mutate_pod, a_pod_object())

    assert reply.code == 503
    assert reply.response["status"]["details"] == {"retryAfterSeconds": 1}
    assert reply.message == (
        "NotReady: gpu-control-plane is starting: its caches are not synced yet; try again"
    )


def test_a_pod_that_asks_for_nothing_of_ours_does_not_wait_for_our_caches():
    assert AdmissionSetup(is_ready=False).ask(webhooks.mutate_pod, a_pod_object(gpus=None)).allowed


def test_the_log_line_says_who_asked_what_and_what_became_of_it():
    setup = AdmissionSetup()
    setup.add_pool()
    setup.add_node()
    pod = a_pod_object(2, metadata={"generateName": "train-"}, name="")

    answer = setup.ask(webhooks.mutate_pod, pod, user="bob").answer

    assert answer.outcome == "patched"
    assert dict(answer.facts) == {
        "object": "team-a/train-*",
        "operation": "CREATE",
        "user": "bob",
        "resource": "gpu.deckhouse.io/whole",
        "units": 2,
        "pool": "whole",
        "reservation": "r0",
        "node": "n1",
        "strategy": "LeastFragmentation",
    }


def test_foreign_text_cannot_blow_up_a_message():
    pod = a_pod_object(gpus="x" * 5000)

    reply = AdmissionSetup().ask(webhooks.mutate_pod, pod, user="u" * 5000)

    assert len(reply.message) <= MAX_MESSAGE_LENGTH
    assert len(str(reply.answer.facts["user"])) <= 256


@given(st.text(), st.integers(min_value=8, max_value=MAX_WARNING_LENGTH))
def test_a_cut_text_fits_and_begins_like_the_text(text, limit):
    short = truncate(text, limit)

    assert len(short) <= limit
    assert short == text or (short.endswith("...") and text.startswith(short[:-3]))


def test_a_text_is_cut_between_words():
    assert truncate("the pod waits until units come free", 20) == "the pod waits..."


def test_a_list_is_ordered_and_says_how_much_it_leaves_out():
    assert listed(["d", "b", "a", "c"], 3) == "a, b, c and 1 more"
    assert listed(["b", "a"]) == "a, b"

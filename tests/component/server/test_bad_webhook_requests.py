"""Bad input at the webhooks, over HTTPS: an exact message, the right status, nothing held."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from manifests.constants import (
    MUTATE_PODS_PATH,
    VALIDATE_DEVICES_PATH,
    VALIDATE_NODES_PATH,
    VALIDATE_PODS_PATH,
    VALIDATE_POOLS_PATH,
)
from tests.support import reviews
from tests.support.polling import until
from tests.support.served_app import MAX_BODY_BYTES, Reply, ServedApp, sample

PATHS = {
    MUTATE_PODS_PATH: "mutate-pods",
    VALIDATE_PODS_PATH: "validate-pods",
    VALIDATE_POOLS_PATH: "validate-gpupools",
    VALIDATE_DEVICES_PATH: "validate-gpudevices",
    VALIDATE_NODES_PATH: "validate-nodes",
}
KINDS = {
    MUTATE_PODS_PATH: (reviews.POD, reviews.a_pod_object()),
    VALIDATE_PODS_PATH: (reviews.POD, reviews.a_pod_object()),
    VALIDATE_POOLS_PATH: (reviews.GPUPOOL, reviews.a_pool_object()),
    VALIDATE_DEVICES_PATH: (reviews.GPUDEVICE, reviews.a_device_object()),
    VALIDATE_NODES_PATH: (reviews.NODE, reviews.a_node_object()),
}
NO_REVIEW = "the body is no AdmissionReview of admission.k8s.io/v1: "

every_path = pytest.mark.parametrize("path", PATHS)


def a_question(path: str, **changes: Any) -> bytes:
    kind, obj = KINDS[path]
    fields: dict[str, Any] = {"obj": obj, "kind": kind, **changes}
    return reviews.a_review(**fields)


def assert_status(reply: Reply, code: int, reason: str, message: str) -> None:
    assert (reply.status, reply.content_type) == (code, "application/json")
    assert reply.json == {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


@every_path
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "Input data was truncated", id="empty"),
        pytest.param(b'{"apiVersion": "admissi', "Input data was truncated", id="truncated"),
        pytest.param(b"<html>", "JSON is malformed: invalid character (byte 0)", id="no JSON"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="a list"),
        pytest.param(b"{}", "Object missing required field `apiVersion`", id="nothing in it"),
        pytest.param(
            b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}',
            "Invalid enum value 'admission.k8s.io/v1beta1' - at `$.apiVersion`",
            id="another version",
        ),
        pytest.param(
            b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": 1}',
            "Expected `object`, got `int` - at `$.request`",
            id="a wrong type",
        ),
    ],
)
async def test_malformed_review_is_answered_400_with_what_is_wrong(
    anonymous: ServedApp, path: str, body: bytes, complaint: str
) -> None:
    counted = sample("gpu_refusals_total", reason="MalformedRequest")
    reply = await anonymous.post(path, body)
    assert_status(reply, 400, "BadRequest", NO_REVIEW + complaint)
    assert sample("gpu_refusals_total", reason="MalformedRequest") == counted + 1
    assert anonymous.reservations == 0


@every_path
async def test_review_of_another_kind_is_answered_400(anonymous: ServedApp, path: str) -> None:
    expected = " ".join(
        (KINDS[path][0]["group"] + "/" + KINDS[path][0]["version"], KINDS[path][0]["kind"])
    ).lstrip("/")
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    reply = await anonymous.post(path, a_question(path, kind=kind))
    message = f"the review is about a apps/v1 Deployment; this path takes {expected}"
    assert_status(reply, 400, "BadRequest", message)


@every_path
async def test_oversized_review_is_answered_413(anonymous: ServedApp, path: str) -> None:
    counted = sample("gpu_refusals_total", reason="MalformedRequest")
    body = a_question(path, padding="x" * MAX_BODY_BYTES)
    with capture_logs() as logs:
        reply = await anonymous.post(path, body)
    message = f"the body is larger than {MAX_BODY_BYTES} bytes"
    assert_status(reply, 413, "RequestEntityTooLarge", message)
    assert [(log["webhook"], log["error"]) for log in logs if "webhook" in log] == [
        (PATHS[path], message)
    ]
    assert sample("gpu_refusals_total", reason="MalformedRequest") == counted + 1


@every_path
async def test_review_of_the_largest_size_is_read(anonymous: ServedApp, path: str) -> None:
    question = a_question(path, padding="")
    body = a_question(path, padding="x" * (MAX_BODY_BYTES - len(question)))
    assert len(body) == MAX_BODY_BYTES
    assert (await anonymous.post(path, body)).status == 200


@every_path
@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "application/cbor"])
async def test_another_content_type_is_answered_415(
    anonymous: ServedApp, path: str, content_type: str
) -> None:
    reply = await anonymous.post(path, a_question(path), Content_Type=content_type)
    message = f"Content-Type must be application/json, not {content_type}"
    assert_status(reply, 415, "UnsupportedMediaType", message)
    assert anonymous.reservations == 0


@every_path
async def test_charset_beside_the_content_type_does_no_harm(
    anonymous: ServedApp, path: str
) -> None:
    reply = await anonymous.post(
        path, a_question(path), Content_Type="application/json; charset=utf-8"
    )
    assert reply.status == 200


@every_path
async def test_get_is_answered_405(anonymous: ServedApp, path: str) -> None:
    assert (await anonymous.call("GET", path)).status == 405


async def test_path_that_is_not_served_is_answered_404(anonymous: ServedApp) -> None:
    assert (await anonymous.post("/mutate/nodes", b"{}")).status == 404


@pytest.mark.parametrize(
    ("path", "obj", "message"),
    [
        pytest.param(
            MUTATE_PODS_PATH,
            reviews.a_pod_object(spec={"containers": "many"}),
            "MalformedRequest: the object cannot be read as v1 Pod: "
            "Expected `array | null`, got `str` - at `$.spec.containers`",
            id="pod",
        ),
        pytest.param(
            VALIDATE_POOLS_PATH,
            reviews.a_pool_object(allocation="Exclusive"),
            'InvalidPool: spec.allocation: "Exclusive" is not an object',
            id="pool",
        ),
        pytest.param(
            VALIDATE_DEVICES_PATH,
            reviews.a_device_object(status={"memoryMiB": "much"}),
            "MalformedRequest: the object cannot be read as gpu.deckhouse.io/v1alpha1 GPUDevice: "
            "Expected `int`, got `str` - at `$.status.memoryMiB`",
            id="device",
        ),
    ],
)
async def test_wrong_typed_object_is_denied_with_the_field(
    anonymous: ServedApp, path: str, obj: object, message: str
) -> None:
    reply = await anonymous.post(path, a_question(path, obj=obj))
    response = reply.json["response"]
    assert (reply.status, response["allowed"]) == (200, False)
    assert (response["status"]["code"], response["status"]["message"]) == (422, message)
    assert anonymous.reservations == 0


async def test_body_that_breaks_off_costs_no_traceback_and_holds_nothing(
    anonymous: ServedApp,
) -> None:
    body = a_question(MUTATE_PODS_PATH)
    head = (
        f"POST {MUTATE_PODS_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with capture_logs() as logs:
        await anonymous.send_and_hang_up(head.encode() + body[: len(body) // 2])
        await until(lambda: bool(logs))
        assert (await anonymous.call("GET", "/livez")).status == 200
    assert [log["log_level"] for log in logs] == ["warning"]
    assert logs[0]["webhook"] == "mutate-pods"
    assert anonymous.reservations == 0


async def test_failing_decision_is_answered_500_without_a_traceback_and_counted(
    anonymous: ServedApp,
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("inside")

    anonymous.webhook_setup.allocation_state.reader.admission.plan = fail  # type: ignore[method-assign, assignment]  # a defect
    labels = {"webhook": "mutate-pods", "outcome": "failed"}
    counted = sample("gpu_admission_duration_seconds_count", **labels)
    with capture_logs() as logs:
        reply = await anonymous.post(MUTATE_PODS_PATH, a_question(MUTATE_PODS_PATH))
    message = "gpu-control-plane failed to decide; see its log"
    assert_status(reply, 500, "InternalError", message)
    assert sample("gpu_admission_duration_seconds_count", **labels) == counted + 1
    assert [(log["event"], log["exc_info"]) for log in logs if "exc_info" in log] == [
        ("admission failed", True)
    ]

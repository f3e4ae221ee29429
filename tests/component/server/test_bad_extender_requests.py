"""Bad input at the extender, over HTTPS: HTTP 200 and an exact error, nothing held, nothing bound."""

import msgspec
import pytest
from structlog.testing import capture_logs

from manifests.constants import BIND_PATH, FILTER_PATH, PREEMPT_PATH, PRIORITIZE_PATH
from scheduler.codec import NODE_NAMES_ONLY
from tests.support.polling import until
from tests.support.scheduling import a_wire_pod, binding_args, extender_args, preemption_args
from tests.support.served_app import MAX_BODY_BYTES, Reply, ServedApp, sample

POD = a_wire_pod(whole=1)
ARGS = {
    FILTER_PATH: extender_args(POD, "n1"),
    PRIORITIZE_PATH: extender_args(POD, "n1"),
    PREEMPT_PATH: preemption_args(POD, n1=["uid-b"]),
    BIND_PATH: binding_args(),
}
FAILED = "gpu-control-plane failed to decide; see its log"

every_verb = pytest.mark.parametrize("path", ARGS)


def assert_refused(reply: Reply, path: str, error: str) -> None:
    """The harmless answer; with the error where kube-scheduler has a field for it."""
    assert (reply.status, reply.content_type) == (200, "application/json")
    match path:
        case "/scheduler/filter":
            assert (reply.json["Error"], reply.json["NodeNames"]) == (error, [])
        case "/scheduler/prioritize":
            assert reply.json == []
        case "/scheduler/preempt":
            assert reply.json == {"NodeNameToMetaVictims": {}}
        case _:
            assert reply.json == {"Error": error}


async def refuse(served: ServedApp, path: str, body: bytes, error: str) -> None:
    served.extender_setup.pending()
    verb = path.rsplit("/", maxsplit=1)[-1]
    labels = {"verb": verb, "outcome": "malformed"}
    counted = sample("gpu_extender_duration_seconds_count", **labels)
    with capture_logs() as logs:
        reply = await served.post(path, body)
    assert_refused(reply, path, error)
    assert [(log["verb"], log["error"]) for log in logs if "verb" in log] == [(verb, error)]
    assert sample("gpu_extender_duration_seconds_count", **labels) == counted + 1
    assert (served.reservations, served.extender_setup.binder.bindings) == (0, [])


@every_verb
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "Input data was truncated", id="empty"),
        pytest.param(b'{"Pod": {"metada', "Input data was truncated", id="truncated"),
        pytest.param(b"<html>", "JSON is malformed: invalid character (byte 0)", id="no JSON"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="a list"),
    ],
)
async def test_malformed_arguments_are_refused_with_what_is_wrong(
    scheduler: ServedApp, path: str, body: bytes, complaint: str
) -> None:
    await refuse(scheduler, path, body, f"the request cannot be read: {complaint}")


@pytest.mark.parametrize(
    ("path", "args", "error"),
    [
        pytest.param(
            FILTER_PATH,
            {"NodeNames": ["n1"]},
            "ExtenderArgs: Pod is missing",
            id="filter without a pod",
        ),
        pytest.param(
            FILTER_PATH,
            {"Pod": POD},
            "ExtenderArgs: both NodeNames and Nodes are missing",
            id="filter without nodes",
        ),
        pytest.param(
            FILTER_PATH,
            {"Pod": POD, "Nodes": {"items": []}},
            NODE_NAMES_ONLY,
            id="filter with whole nodes",
        ),
        pytest.param(
            FILTER_PATH,
            {"Pod": POD, "NodeNames": "n1"},
            "the request cannot be read: Expected `array | null`, got `str` - at `$.NodeNames`",
            id="filter with a wrong type",
        ),
        pytest.param(
            PRIORITIZE_PATH,
            {"Pod": POD, "NodeNames": [1]},
            "the request cannot be read: Expected `str`, got `int` - at `$.NodeNames[0]`",
            id="prioritize with a wrong type",
        ),
        pytest.param(
            PREEMPT_PATH,
            {"Pod": POD},
            "ExtenderPreemptionArgs: NodeNameToMetaVictims is missing",
            id="preempt without victims",
        ),
        pytest.param(
            BIND_PATH,
            {"PodName": "p", "PodNamespace": "default", "Node": ""},
            "ExtenderBindingArgs: PodUID, Node missing or empty",
            id="bind without uid and node",
        ),
        pytest.param(
            BIND_PATH,
            {"PodName": ["p"], "PodNamespace": "default", "PodUID": "u", "Node": "n1"},
            "the request cannot be read: Expected `str`, got `array` - at `$.PodName`",
            id="bind with a wrong type",
        ),
    ],
)
async def test_incomplete_arguments_are_refused_by_field(
    scheduler: ServedApp, path: str, args: object, error: str
) -> None:
    await refuse(scheduler, path, msgspec.json.encode(args), error)


@every_verb
async def test_oversized_arguments_are_refused_in_the_protocol(
    scheduler: ServedApp, path: str
) -> None:
    body = ARGS[path] + b" " * MAX_BODY_BYTES
    await refuse(scheduler, path, body, f"the body is larger than {MAX_BODY_BYTES} bytes")


@every_verb
async def test_get_is_answered_405(scheduler: ServedApp, path: str) -> None:
    assert (await scheduler.call("GET", path)).status == 405


async def test_unknown_nodes_are_reported_one_by_one(scheduler: ServedApp) -> None:
    body = extender_args(POD, "n1", "ghost", "spectre")
    reply = await scheduler.post(FILTER_PATH, body)
    unknown = "GPU pool whole: node is not known to the GPU control plane"
    assert (reply.status, reply.json["Error"]) == (200, "")
    assert reply.json["NodeNames"] == ["n1"]
    refused = {**reply.json["FailedNodes"], **reply.json["FailedAndUnresolvableNodes"]}
    assert refused == {"ghost": unknown, "spectre": unknown}


async def test_bind_of_a_pod_that_nobody_knows_is_refused(scheduler: ServedApp) -> None:
    reply = await scheduler.post(BIND_PATH, binding_args("ghost"))
    assert reply.status == 200
    assert "ghost" in reply.json["Error"]
    assert (scheduler.reservations, scheduler.extender_setup.binder.bindings) == (0, [])


async def test_bind_to_a_node_that_does_not_exist_is_refused(scheduler: ServedApp) -> None:
    scheduler.extender_setup.pending()
    reply = await scheduler.post(BIND_PATH, binding_args(node="ghost"))
    assert reply.json == {"Error": "GPU pool whole: node has no device of the pool"}
    assert (scheduler.reservations, scheduler.extender_setup.binder.bindings) == (0, [])


async def test_arguments_that_break_off_cost_no_traceback(scheduler: ServedApp) -> None:
    scheduler.extender_setup.pending()
    head = f"POST {BIND_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ARGS[BIND_PATH])}\r\n\r\n"
    with capture_logs() as logs:
        await scheduler.send_and_hang_up(head.encode() + ARGS[BIND_PATH][:20])
        await until(lambda: bool(logs))
    assert [(log["log_level"], log["verb"]) for log in logs] == [("warning", "bind")]
    assert (scheduler.reservations, scheduler.extender_setup.binder.bindings) == (0, [])


@every_verb
async def test_failing_decision_is_answered_in_the_protocol_and_counted(
    scheduler: ServedApp, path: str
) -> None:
    def fail(*_args: object) -> None:
        raise ZeroDivisionError("inside")

    scheduler.extender_setup.pending()
    index = scheduler.webhook_setup.allocation_state.index
    index.pool_of = fail  # type: ignore[method-assign, assignment]  # a defect
    verb = path.rsplit("/", maxsplit=1)[-1]
    labels = {"verb": verb, "outcome": "failed"}
    counted = sample("gpu_extender_duration_seconds_count", **labels)
    with capture_logs() as logs:
        reply = await scheduler.post(path, ARGS[path])
    assert_refused(reply, path, FAILED)
    assert b"ZeroDivisionError" not in reply.body
    assert sample("gpu_extender_duration_seconds_count", **labels) == counted + 1
    assert [(log["event"], log["exc_info"]) for log in logs if "exc_info" in log] == [
        ("extender call failed", True)
    ]


async def test_server_answers_as_before_after_all_that(scheduler: ServedApp) -> None:
    scheduler.extender_setup.pending()
    for path in ARGS:
        for body in (b"", b"[]", b"\x00", b" " * (MAX_BODY_BYTES + 1)):
            await scheduler.post(path, body)
    reply = await scheduler.post(BIND_PATH, ARGS[BIND_PATH])
    assert reply.json == {"Error": ""}
    assert [binding.name for binding in scheduler.extender_setup.binder.bindings] == ["p"]

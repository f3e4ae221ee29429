"""Every way in which a request can fail ends in the one tree of errors."""

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    TimedOut,
    Undecodable,
    UnexpectedStatus,
    Unreachable,
)
from kube.resources import GPU_POOLS, PODS
from telemetry.metrics import REGISTRY
from tests.support.canned_api import (
    Answer,
    CannedApi,
    Cut,
    Hang,
    Json,
    NotHttp,
    Reset,
    Text,
    status,
)
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.looptime

POD = {"metadata": {"name": "p", "namespace": "a", "resourceVersion": "7"}}


PAGE = Text("404 page not found", status=404)
NAMED = Json(status(404, "NotFound", details={"name": "p", "kind": "gpupools"}), 404)
KIND = Json({"resources": [{"name": "gpupools"}]})
GROUPS = Json({"groups": [{"versions": [{"groupVersion": "apps/v1"}]}]})
OURS = Json({"groups": [{"versions": [{"groupVersion": GPU_POOLS.api_version}]}]})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([NAMED], NotFound, id="the object is named"),
        pytest.param([PAGE, Json({"resources": []})], NotFound, id="there is no such kind"),
        pytest.param([PAGE, PAGE, GROUPS], NotFound, id="there is no such group"),
        pytest.param([PAGE, KIND], UnexpectedStatus, id="the kind is served"),
        pytest.param([PAGE, PAGE, OURS], UnexpectedStatus, id="the group is served"),
        pytest.param([PAGE, PAGE, PAGE], UnexpectedStatus, id="a proxy"),
        pytest.param([PAGE, Text(status=502)], ServerError, id="discovery fails"),
        pytest.param([PAGE, Json(status(403, "Forbidden"), 403)], Forbidden, id="forbidden"),
    ],
)
async def test_an_object_is_gone_only_where_the_api_server_names_it_or_has_no_such_kind(
    api: CannedApi, client: KubeClient, answers: list[Answer], expected: type[ApiError]
) -> None:
    calls = (
        lambda: client.get(GPU_POOLS, dict[str, object], "p"),
        lambda: client.delete(GPU_POOLS, "p"),
        lambda: client.json_patch(GPU_POOLS, [], name="p"),
        lambda: client.apply(GPU_POOLS, {"metadata": {"name": "p"}}, field_manager="m"),
    )
    for call in calls:
        api.will_answer(*answers)
        with pytest.raises(ApiError) as raised:
            await call()
        assert type(raised.value) is expected


async def test_a_404_of_a_core_kind_is_never_taken_for_an_absent_kind(
    api: CannedApi, client: KubeClient
) -> None:
    api.will_answer(PAGE, GROUPS)
    with pytest.raises(UnexpectedStatus):
        await client.serves(PODS)


def requests_counted(method: str, code: str) -> float:
    labels = {"method": method, "resource": "pods", "code": code}
    return REGISTRY.get_sample_value("gpu_api_request_duration_seconds_count", labels) or 0.0


@pytest.mark.parametrize(
    ("answer", "expected", "code"),
    [
        pytest.param(Json(status(500, "InternalError"), 500), ServerError, "500", id="500"),
        pytest.param(Text(status=502), ServerError, "502", id="502 with a page"),
        pytest.param(Text("", status=503), ServerError, "503", id="503 with nothing"),
        pytest.param(Json({}, 302, {"Location": "/x"}), UnexpectedStatus, "302", id="redirect"),
        pytest.param(Hang(), TimedOut, "TimedOut", id="no answer"),
        pytest.param(Cut(), Unreachable, "Unreachable", id="cut inside the body"),
        pytest.param(NotHttp(), Unreachable, "Unreachable", id="not HTTP"),
        pytest.param(Text("<html>login</html>", 200), Undecodable, "200", id="200 with a page"),
        pytest.param(Json(["x"]), Undecodable, "200", id="200 with another JSON"),
        pytest.param(Text("", 200), Undecodable, "200", id="200 with nothing"),
    ],
)
async def test_a_failed_write_is_in_doubt(
    api: CannedApi, client: KubeClient, answer: Answer, expected: type[ApiError], code: str
) -> None:
    before = requests_counted("POST", code)
    api.will_answer(answer)
    with pytest.raises(expected) as caught:
        (await client.create(PODS, POD)).decode(Pod)
    assert type(caught.value) is expected
    assert not caught.value.is_definite
    assert requests_counted("POST", code) == before + 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_whose_connection_breaks_is_not_sent_again(
    api: CannedApi, client: KubeClient, method: str
) -> None:
    api.will_answer(Json(POD), Reset(), Json(POD))
    await client.get(PODS, Pod, "p", namespace="a")  # so that the connection is a kept-alive one
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "POST": lambda: client.create(PODS, POD),
        "PUT": lambda: client.replace(PODS, POD),
        "PATCH": lambda: client.merge_patch(PODS, {}, name="p", namespace="a"),
        "DELETE": lambda: client.delete(PODS, "p", namespace="a"),
    }
    with pytest.raises(Unreachable) as caught:
        await calls[method]()
    assert caught.value.request_sent
    assert [seen.method for seen in api.seen] == ["GET", method]


async def test_a_read_whose_kept_alive_connection_breaks_is_sent_again(
    api: CannedApi, client: KubeClient
) -> None:
    api.will_answer(Json(POD), Reset(), Json(POD))
    await client.get(PODS, Pod, "p", namespace="a")
    assert (await client.get(PODS, Pod, "p", namespace="a")).metadata.name == "p"


async def test_a_refused_connection_is_a_definite_no(clock: LoopClock) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with KubeClient(StaticConnection(url), clock) as client:
            with pytest.raises(Unreachable) as caught:
                await client.create(PODS, POD)
    assert caught.value.is_definite


async def test_plain_http_where_tls_is_expected_is_unreachable(
    api: CannedApi, clock: LoopClock
) -> None:
    configuration = StaticConnection(api.url.replace("http:", "https:"))
    async with KubeClient(configuration, clock) as client:
        with pytest.raises(Unreachable) as caught:
            await client.create(PODS, POD)
    assert caught.value.is_definite


async def test_a_request_ends_at_its_time_out(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(Hang())
    started = clock.monotonic()
    with pytest.raises(TimedOut):
        await client.get(PODS, Pod, "p", namespace="a")
    assert clock.monotonic() - started == pytest.approx(10, abs=1)


async def test_a_refusal_carries_what_the_server_said(api: CannedApi, client: KubeClient) -> None:
    api.will_answer(Json(status(409, "Conflict", "pod p is already assigned to node n"), 409))
    with pytest.raises(Conflict, match="already assigned") as caught:
        await client.create(PODS, POD, subresource="binding")
    assert caught.value.is_definite


async def test_a_refusal_whose_text_is_cut_off_is_still_a_refusal(
    api: CannedApi, client: KubeClient
) -> None:
    api.will_answer(Json(status(409, "Conflict", "x" * 200_000), 409))
    with pytest.raises(Conflict) as caught:
        await client.create(PODS, POD)
    assert len(str(caught.value)) < 400


async def test_cancellation_passes_through_and_is_counted(
    api: CannedApi, client: KubeClient
) -> None:
    before = requests_counted("GET", "CancelledError")
    api.will_answer(Hang())
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(client.get(PODS, Pod, "p", namespace="a"))
        await api.until_seen(1)
        call.cancel()
    assert call.cancelled()
    assert requests_counted("GET", "CancelledError") == before + 1


async def test_calls_outside_of_the_context_are_a_mistake_of_ours(
    api: CannedApi, clock: LoopClock
) -> None:
    client = KubeClient(StaticConnection(api.url), clock)
    for _ in ("before", "after"):
        with pytest.raises(RuntimeError, match="not open"):
            await client.get(PODS, Pod, "p", namespace="a")
        async with client:
            pass

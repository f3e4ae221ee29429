"""Each thing that a proxy may do to a request is what it says; the upstream here is a plain server."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from tests.fault.breaking import Armed, Breakage, Call, Fault
from tests.fault.proxy import NoUpstreamError, Proxy, Route
from tests.fault.streams import Disturbance
from tests.support import ports

BINDING = "/api/v1/namespaces/default/pods/p/binding"
BODY = {"target": {"name": "n"}}


class Upstream:
    """Answers 201 to everything, keeps what it was asked, and holds watches open."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.was_asked = asyncio.Event()
        self.is_there = True
        self.port: int | None = None
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    def route(self, path: str, *, has_certificate: bool) -> Route:
        if not self.is_there:
            raise NoUpstreamError
        return Route(f"http://127.0.0.1:{self.port}", ssl=True, replica=7)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.method, request.path_qs))
        self.was_asked.set()
        if "watch=true" in request.path_qs:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            while True:
                await response.write(await self.lines.get())
        body = await request.content.read()
        return web.Response(
            status=201, body=body, headers={"X-Token": request.headers.get("Authorization", "")}
        )


class Proxied:
    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.armed = Armed()
        self.proxy = Proxy(ports.free_port(), None, upstream, self.armed)
        self.session: aiohttp.ClientSession

    async def bind(self) -> aiohttp.ClientResponse:
        return await self.session.post(self.proxy.url + BINDING, json=BODY)

    def arm(self, breakage: Breakage, **more) -> None:
        self.armed.arm(Fault(name="it", target="binding", breakage=breakage, **more))


@pytest.fixture
async def proxied(aiohttp_raw_server):
    upstream = Upstream()
    made = Proxied(upstream)
    server = await aiohttp_raw_server(upstream.answer)
    upstream.port = server.port
    await made.proxy.start()
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as made.session:
        yield made
    await made.proxy.close()


async def test_request_passes_with_its_body_and_headers(proxied):
    answer = await proxied.bind()
    assert (answer.status, await answer.json(content_type=None)) == (201, BODY)
    assert answer.headers["X-Token"] == "Bearer t"
    assert proxied.upstream.asked == [("POST", BINDING)]


@pytest.mark.parametrize("status", [409, 422, 429, 500, 503])
async def test_failure_is_a_status_and_is_not_carried_out(proxied, status):
    proxied.arm(Breakage.STATUS, status=status, retry_after_s=3 if status == 429 else None)
    answer = await proxied.bind()
    body = await answer.json()
    assert (answer.status, body["kind"], body["code"]) == (status, "Status", status)
    assert answer.headers.get("Retry-After") == ("3" if status == 429 else None)
    assert proxied.upstream.asked == []
    assert proxied.armed.used == {"it": 1}
    assert (await proxied.bind()).status == 201


async def test_reset_before_is_not_carried_out(proxied):
    proxied.arm(Breakage.RESET_BEFORE)
    with pytest.raises(aiohttp.ClientConnectionError):
        await proxied.bind()
    assert proxied.upstream.asked == []


async def test_reset_after_is_carried_out(proxied):
    proxied.arm(Breakage.RESET_AFTER)
    with pytest.raises(aiohttp.ClientConnectionError):
        await proxied.bind()
    assert proxied.upstream.asked == [("POST", BINDING)]


async def test_error_after_is_carried_out(proxied):
    proxied.arm(Breakage.ERROR_AFTER)
    assert (await proxied.bind()).status == 500
    assert proxied.upstream.asked == [("POST", BINDING)]


async def test_late_request_is_carried_out_although_its_client_has_gone(proxied):
    proxied.arm(Breakage.LATE, held_s=0.1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            await proxied.bind()
    assert proxied.upstream.asked == []
    async with asyncio.timeout(120):
        await proxied.upstream.was_asked.wait()
    assert proxied.upstream.asked == [("POST", BINDING)]


async def test_swallowed_request_is_held_and_never_carried_out(proxied):
    proxied.arm(Breakage.SWALLOWED, held_s=0.05)
    with pytest.raises(aiohttp.ClientConnectionError):
        await proxied.bind()
    assert proxied.upstream.asked == []


@pytest.mark.parametrize(
    ("breakage", "asked_before"),
    [
        (Breakage.PASS, 0),
        (Breakage.RESET_BEFORE, 0),
        (Breakage.PASS_THEN_ACT, 1),
        (Breakage.RESET_AFTER, 1),
    ],
)
async def test_action_comes_before_or_after_the_request_is_carried_out(
    proxied, breakage, asked_before
):
    seen: list[tuple[int, Call]] = []

    async def act(call: Call) -> None:
        seen.append((len(proxied.upstream.asked), call))

    proxied.arm(breakage, action=act)
    try:
        await proxied.bind()
    except aiohttp.ClientConnectionError:
        assert breakage in {Breakage.RESET_BEFORE, Breakage.RESET_AFTER}
    ((asked, call),) = seen
    assert asked == asked_before
    assert (call.namespace, call.pod, call.node, call.replica) == ("default", "p", "n", 7)


async def test_bind_of_the_scheduler_names_its_pod(proxied):
    calls: list[Call] = []

    async def act(call: Call) -> None:
        calls.append(call)

    proxied.armed.arm(Fault(name="it", target="bind", breakage=Breakage.PASS, action=act))
    await proxied.session.post(
        f"{proxied.proxy.url}/scheduler/bind", json={"PodName": "p", "PodNamespace": "ns"}
    )
    assert [(call.namespace, call.pod) for call in calls] == [("ns", "p")]


async def test_without_a_way_the_connection_is_reset(proxied):
    proxied.upstream.is_there = False
    with pytest.raises(aiohttp.ClientConnectionError):
        await proxied.bind()


async def test_faults_befall_only_their_target(proxied):
    proxied.arm(Breakage.STATUS)
    answer = await proxied.session.get(f"{proxied.proxy.url}/api/v1/namespaces/default/pods/p")
    assert answer.status == 201
    assert [fault.name for fault in proxied.armed.waiting()] == ["it"]
    proxied.armed.disarm()
    assert (await proxied.bind()).status == 201


async def test_who_asks_is_told_of_every_fault_and_its_request(proxied):
    reported: list[tuple[str, str]] = []
    proxied.armed.on_use = lambda fault, call: reported.append((fault.name, call.pod))
    proxied.arm(Breakage.STATUS)
    await proxied.bind()
    await proxied.bind()
    assert reported == [("it", "p")]


async def test_fault_that_ends_a_server_waits_until_it_may(proxied):
    proxied.arm(Breakage.STATUS, ends_a_server=True)
    proxied.armed.may_end = lambda: False
    assert (await proxied.bind()).status == 201
    proxied.armed.may_end = lambda: True
    assert (await proxied.bind()).status == 500


async def test_watch_passes_line_by_line_and_can_be_cut(proxied):
    line = json.dumps({"type": "ADDED", "object": {"metadata": {"uid": "u"}}}).encode() + b"\n"
    url = f"{proxied.proxy.url}/api/v1/pods?watch=true"
    async with proxied.session.get(url) as watch:
        proxied.upstream.lines.put_nowait(line)
        assert await watch.content.readline() == line
        assert not proxied.proxy.disturb("nodes", Disturbance.CUT, "cut", 0)
        assert proxied.proxy.disturb("pods", Disturbance.CUT, "cut", 0)
        with pytest.raises(aiohttp.ClientError):
            await watch.content.readline()
    assert proxied.armed.used == {"cut": 1}


async def test_watch_can_be_refused(proxied):
    proxied.armed.arm(Fault(name="gone", target="watch pods", breakage=Breakage.STATUS, status=410))
    answer = await proxied.session.get(f"{proxied.proxy.url}/api/v1/pods?watch=true")
    assert (answer.status, (await answer.json())["reason"]) == (410, "Expired")


@pytest.mark.parametrize("query", ["", "?watch=true"])
async def test_kind_that_is_not_served_is_answered_with_404_until_it_is_again(proxied, query):
    proxied.armed.not_served.add("gpupools")
    url = f"{proxied.proxy.url}/apis/gpu.deckhouse.io/v1alpha1/gpupools"
    answer = await proxied.session.get(url + query)
    assert (answer.status, (await answer.json())["reason"]) == (404, "NotFound")
    assert proxied.armed.used == {"404 of a kind": 1}
    assert (await proxied.session.get(f"{url}/p")).status == 201
    proxied.armed.disarm()
    assert (await proxied.session.get(url)).status == 201


async def test_late_request_is_dropped_where_nobody_is_left_to_get_it(proxied):
    is_held = asyncio.Event()
    proxied.armed.on_use = lambda _fault, _call: is_held.set()
    proxied.arm(Breakage.LATE, held_s=3600)

    async def drop() -> None:
        await is_held.wait()
        proxied.proxy.drop_late()

    async with asyncio.TaskGroup() as group:
        group.create_task(drop())
        with pytest.raises(aiohttp.ClientError):
            await proxied.bind()
    assert proxied.upstream.asked == []

"""A console whose data are canned: what its streams send is what a test puts there, and its answers say what was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import yarl

from api.clock import Clock
from console.console_data import BadQuestionError, PodTrial, TooManyViewersError
from console.edge.console_application import ConsoleApplication
from console.edge.console_port import ConsolePort
from console.edge.local_login import LocalLogin
from console.edge.static_files import StaticFiles
from console.edge.viewer_limits import ViewerLimits
from console.edge.viewer_login import LoggedIn, ViewerLogin
from console.rows import DeviceDetail, DeviceRow, PodDetail, ViewerRow, WaitingRow, WhatIfAnswer
from console.visibility import Visibility
from http_edge.listening_sockets import open_listeners
from tests.support.loop_clock import LoopClock

SNAPSHOT = b"event: snapshot\ndata: {}\n\n"
PAGE = {
    "index.html": b"<!doctype html>" + b" " * 2_000,
    "console.js": b"export {}\n" * 200,
    "Waiting-0AB3Z4Y5.js": b"export {}\n",
}
ALL_SEEN = Visibility(namespaces=None, nodes=True)
EVERYTHING = LoggedIn(row=ViewerRow(all_namespaces=True, nodes=True), visibility=ALL_SEEN)


class CannedStream:
    """The events of one viewer."""

    def __init__(self, viewer: ViewerRow, drop: Callable[[], None], snapshot: bytes) -> None:
        self.viewer = viewer
        self.drop = drop
        self.is_closed = False
        self._events: asyncio.Queue[bytes] = asyncio.Queue()
        self._last = b"\n\n"
        self.send(snapshot)

    def send(self, event: bytes) -> None:
        self._events.put_nowait(event)

    @property
    def is_inside_event(self) -> bool:
        return not self._last.endswith(b"\n\n")

    async def next_event(self) -> bytes:
        self._last = await self._events.get()
        return self._last

    def close(self) -> None:
        self.is_closed = True


class CannedData:
    """A `ConsoleData` that knows one device, one waiting pod and one pool."""

    def __init__(self) -> None:
        self.is_ready = True
        self.most_streams = 100
        self.snapshot = SNAPSHOT
        self.streams: list[CannedStream] = []
        self.asked: list[tuple[object, Visibility]] = []
        self.fault: Exception | None = None

    @property
    def open_streams(self) -> list[CannedStream]:
        return [stream for stream in self.streams if not stream.is_closed]

    def open_stream(
        self, viewer: ViewerRow, visibility: Visibility, *, drop: Callable[[], None]
    ) -> CannedStream:
        if len(self.open_streams) >= self.most_streams:
            raise TooManyViewersError(f"{self.most_streams} pages are open, which is the limit")
        self.asked.append((viewer, visibility))
        self.streams.append(CannedStream(viewer, drop, self.snapshot))
        return self.streams[-1]

    def device(self, name: str, visibility: Visibility) -> DeviceDetail | None:
        self.asked.append((name, visibility))
        if self.fault is not None:
            raise self.fault
        if name != "gpu-0-0":
            return None
        return DeviceDetail(name=name, row=DeviceRow(node="gpu-0", address="0000", look="free"))

    def pod(self, namespace: str, name: str, visibility: Visibility) -> PodDetail | None:
        self.asked.append((f"{namespace}/{name}", visibility))
        if (namespace, name) != ("ml-team", "big") or not visibility.sees(namespace):
            return None
        row = WaitingRow(namespace=namespace, name=name, pool="training", units=4, created="")
        return PodDetail(name=f"{namespace}/{name}", row=row)

    def try_pods(self, trial: PodTrial, visibility: Visibility) -> WhatIfAnswer:
        self.asked.append((trial, visibility))
        if trial.pool != "training":
            raise BadQuestionError(f"there is no pool {trial.pool}")
        return WhatIfAnswer(pods=trial.times, message="none of them would be placed")


@dataclass
class Heard:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of a refusal, which is JSON and says nothing of the program's insides."""
        assert self.headers["Content-Type"] == "application/json; charset=utf-8", self.body
        assert b"Traceback" not in self.body
        (text,) = self.json.values()
        return str(text)


@dataclass
class ServedConsole:
    """A console under way."""

    data: CannedData
    login: ViewerLogin
    port: int
    session: aiohttp.ClientSession
    application: ConsoleApplication
    clock: Clock
    headers: dict[str, str] = field(default_factory=dict)
    """Of each request: those of a viewer who is logged in."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ask(self, path: str, *, method: str = "GET", **headers: str) -> Heard:
        """Make a request; a header Some-Name is given as Some_Name, and left out where it is empty."""
        return await self.send(path, method, None, headers)

    async def send(
        self, path: str, method: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Heard:
        given = self.headers | {name.replace("_", "-"): item for name, item in headers.items()}
        sent = {name: item for name, item in given.items() if item}
        async with self.session.request(
            method, yarl.URL(f"{self.url}{path}", encoded=True), headers=sent, data=body
        ) as reply:
            return Heard(reply.status, reply.headers, await reply.read())

    @asynccontextmanager
    async def stream(
        self, query: str = "", **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"{self.url}/api/v1/stream{query}"
        async with self.session.get(url, headers=self.headers | headers) as reply:
            assert reply.status == 200, await reply.read()
            yield reply


@asynccontextmanager
async def served_console(
    login: Callable[[int, Clock], ViewerLogin],
    *,
    limits: ViewerLimits | None = None,
    has_probes: bool = False,
    page: Mapping[str, bytes] = PAGE,
) -> AsyncIterator[ServedConsole]:
    """Serve canned data on a free port of the loopback address."""
    clock = LoopClock()
    data = CannedData()
    async with ConsolePort(await open_listeners("127.0.0.1", 0), limits=limits) as port:
        logged_in_by = login(port.number, clock)
        application = ConsoleApplication(
            data,
            logged_in_by,
            files=StaticFiles(page),
            clock=clock,
            has_probes=has_probes,
            limits=limits,
        )
        port.serve(application)
        async with aiohttp.ClientSession(
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(),
        ) as session:
            yield ServedConsole(data, logged_in_by, port.number, session, application, clock)


@asynccontextmanager
async def local_console(
    *, limits: ViewerLimits | None = None, page: Mapping[str, bytes] = PAGE
) -> AsyncIterator[tuple[ServedConsole, str]]:
    """Yield a console of one user, and its one-time token."""
    async with served_console(
        lambda port, clock: LocalLogin(EVERYTHING, port, clock), limits=limits, page=page
    ) as console:
        assert isinstance(console.login, LocalLogin)
        yield console, console.login.address.partition("#token=")[2]


async def log_in(console: ServedConsole, token: str) -> None:
    """Have further requests carry the cookie."""
    heard = await console.ask("/api/v1/login", Authorization=f"Bearer {token}")
    assert heard.status == 204, heard.body
    console.headers["Cookie"] = heard.headers["Set-Cookie"].partition(";")[0]

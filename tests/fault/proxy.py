"""An HTTPS proxy that ends TLS on both sides, so that it can pick requests by path and break them.

One class for both places: between server and API server, and in front of the server. Where a request
goes, `Upstream` says. What befalls it is taken from `Armed`; a watch goes through a `WatchStream`.
"""

import asyncio
import contextlib
import json
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from tests.fault import breaking
from tests.fault.breaking import Armed, Breakage, Call, Fault
from tests.fault.streams import Disturbance, WatchStream

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

_HOP_BY_HOP: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}
)
_READ_BUFFER: Final = 16 * 1024 * 1024
"""A watch event is one line."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class NoUpstreamError(Exception):
    """There is nobody to send a request to; the client's connection is reset."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes."""

    url: str
    ssl: "ssl.SSLContext | bool"
    replica: int


class Upstream(Protocol):
    """Says where requests go."""

    def route(self, path: str, *, has_certificate: bool) -> Route:
        """Return the way of a request; NowhereToGo where there is none."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: "CIMultiDict[str]"
    body: bytes


@final
class Proxy:
    """One listening port. `start` it, and `close` it at the end; both in one event loop."""

    def __init__(
        self, port: int, serving: "ssl.SSLContext | None", upstream: Upstream, armed: Armed
    ) -> None:
        """Serve with TLS where there is a context for it."""
        self.url = f"{'https' if serving else 'http'}://127.0.0.1:{port}"
        self._port = port
        self._serving = serving
        self._upstream = upstream
        self._armed = armed
        self._watches: dict[WatchStream, str] = {}
        # live watch -> its resource
        self._late: set[asyncio.Task[web.StreamResponse]] = set()
        self._session: aiohttp.ClientSession
        self._runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True, keepalive_timeout=600)
        )

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=_READ_BUFFER,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._serving).start()

    def drop_late(self) -> None:
        """Carry out none of the requests that are held: who they were sent to is no more."""
        for late in self._late:
            late.cancel()

    async def close(self) -> None:
        self.drop_late()
        await self._runner.shutdown()
        await self._runner.cleanup()
        await self._session.close()

    def disturb(self, resource: str, disturbance: Disturbance, name: str, amount: float) -> bool:
        """Have it happen to every live watch of the resource; False where there is none."""
        streams = [stream for stream, of in self._watches.items() if of == resource]
        reached = [stream.disturb(disturbance, name, amount) for stream in streams]
        return any(reached)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        has_certificate = bool(request.get_extra_info("peercert"))
        try:
            route = self._upstream.route(request.path, has_certificate=has_certificate)
        except NoUpstreamError:
            return _reset(request)
        call = _call_of(request, body, route.replica)
        fault = self._armed.take(call)
        try:
            if fault is None:
                return await self._carry_out(request, call, route, body)
            return await self._fail(fault, request, call, route, body)
        except (aiohttp.ClientError, OSError):
            return _reset(request)

    async def _fail(  # one request, passed on
        self, fault: Fault, request: web.BaseRequest, call: Call, route: Route, body: bytes
    ) -> web.StreamResponse:
        if fault.action is not None and not fault.breakage.acts_after:
            await fault.action(call)
        match fault.breakage:
            case Breakage.STATUS:
                return _failure(fault)
            case Breakage.RESET_BEFORE:
                return _reset(request)
            case Breakage.SWALLOWED:
                await asyncio.sleep(fault.held_s)
                return _reset(request)
            case Breakage.LATE:
                # The client may give up meanwhile, or be dead; the request is on its way all the same.
                late = asyncio.get_running_loop().create_task(
                    self._carry_out_late(request, call, route, body, fault)
                )
                self._late.add(late)
                late.add_done_callback(self._late.discard)
                return await asyncio.shield(late)
            case Breakage.PASS:
                return await self._carry_out(request, call, route, body)
            case Breakage.PASS_THEN_ACT | Breakage.RESET_AFTER | Breakage.ERROR_AFTER:
                answer = await self._ask(request, route, body)
                if fault.action is not None:
                    await fault.action(call)
                if fault.breakage is Breakage.RESET_AFTER:
                    return _reset(request)
                if fault.breakage is Breakage.ERROR_AFTER:
                    return _failure(fault)
                return _relay(answer)

    async def _carry_out_late(
        self, request: web.BaseRequest, call: Call, route: Route, body: bytes, fault: Fault
    ) -> web.StreamResponse:
        await asyncio.sleep(fault.held_s)
        try:
            return await self._carry_out(request, call, route, body)
        except (aiohttp.ClientError, OSError):
            return _reset(request)

    async def _carry_out(
        self, request: web.BaseRequest, call: Call, route: Route, body: bytes
    ) -> web.StreamResponse:
        if call.is_watch:
            return await self._watch(request, call, route)
        return _relay(await self._ask(request, route, body))

    async def _ask(self, request: web.BaseRequest, route: Route, body: bytes) -> _Answer:
        async with self._session.request(
            request.method,
            route.url + request.raw_path,
            data=body or None,
            headers=_end_to_end(request.headers),
            ssl=route.ssl,
            allow_redirects=False,
        ) as answer:
            return _Answer(answer.status, _end_to_end(answer.headers), await answer.read())

    async def _watch(
        self, request: web.BaseRequest, call: Call, route: Route
    ) -> web.StreamResponse:
        headers = _end_to_end(request.headers)
        headers.popall("Accept-Encoding", None)
        async with self._session.get(
            route.url + request.raw_path, headers=headers, ssl=route.ssl
        ) as upstream:
            if upstream.status != 200:
                body = await upstream.read()
                return _relay(_Answer(upstream.status, _end_to_end(upstream.headers), body))
            response = web.StreamResponse(headers=_end_to_end(upstream.headers))
            await response.prepare(request)
            stream = WatchStream(self._armed.used)
            self._watches[stream] = breaking.resource_of(call)
            try:
                ended_properly = await stream.pump(_lines(upstream.content), response)
            except* (aiohttp.ClientError, OSError):
                ended_properly = False
            finally:
                del self._watches[stream]
        if not ended_properly:
            _cut(request)
        return response


async def _lines(content: aiohttp.StreamReader) -> "AsyncIterator[bytes]":
    async for line in content:
        yield line


def _call_of(request: web.BaseRequest, body: bytes, replica: int) -> Call:
    namespace, pod, node = "", "", ""
    parts = request.path.strip("/").split("/")
    if "namespaces" in parts and "pods" in parts[:-1]:
        namespace = parts[parts.index("namespaces") + 1]
        pod = parts[parts.index("pods") + 1]
    if request.path.endswith("/binding"):
        with contextlib.suppress(ValueError, KeyError):
            node = json.loads(body)["target"]["name"]
    elif request.path.endswith("/bind"):
        with contextlib.suppress(ValueError, KeyError):
            arguments = {key.lower(): value for key, value in json.loads(body).items()}
            namespace, pod = arguments["podnamespace"], arguments["podname"]
    return Call(
        method=request.method,
        path=request.path,
        query=request.query_string,
        replica=replica,
        namespace=namespace,
        pod=pod,
        node=node,
    )


def _end_to_end(headers: "Mapping[str, str]") -> "CIMultiDict[str]":
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        if name.lower() not in _HOP_BY_HOP:
            kept.add(name, value)
    return kept


def _relay(answer: _Answer) -> web.Response:
    return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


def _failure(fault: Fault) -> web.Response:
    """Answer as the API server does; the reason is the one that belongs to the code."""
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": f"injected: {fault.name}",
        "reason": _REASONS[fault.status],
        "code": fault.status,
    }
    headers = {}
    if fault.retry_after_s is not None:
        headers["Retry-After"] = str(fault.retry_after_s)
        status["details"] = {"retryAfterSeconds": fault.retry_after_s}
    return web.json_response(status, status=fault.status, headers=headers)


_REASONS: Final = {
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def _reset(request: web.BaseRequest) -> web.Response:
    _cut(request)
    return web.Response(status=502)  # reaches nobody


def _cut(request: web.BaseRequest) -> None:
    """Reset the client's connection."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()

"""An HTTP server that answers as told: what an API server, a proxy or a broken network may say.

    async with CannedApi() as api:
        api.will_answer(Json({"kind": "Status"}, status=500), Hang())
        async with KubeClient(StaticConnection(api.url), clock) as client: ...

Answers are used up in order; `CannedApi.always` answers once there are none left.
"""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Json:
    body: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """Not JSON: by default what a proxy says when there is no API server behind it."""

    body: str = "<html><head><title>502 Bad Gateway</title></head></html>"
    status: int = 502
    content_type: str = "text/html"


@dataclass(frozen=True)
class Hang:
    """Accept the request and never answer."""


@dataclass(frozen=True)
class Reset:
    """Drop the connection without an answer."""


@dataclass(frozen=True)
class Cut:
    """Promise a body and drop the connection half-way."""

    body: bytes = b'{"kind":'


@dataclass(frozen=True)
class Stream:
    """A watch: pieces of the body with pauses (numbers, in seconds) between them, then an end."""

    pieces: Sequence[bytes | float]
    then: Literal["end", "hang", "reset"] = "hang"


@dataclass(frozen=True)
class NotHttp:
    """Speak something else than HTTP."""


Answer = Json | Text | Hang | Reset | Cut | Stream | NotHttp
Answering = Callable[[Seen], Answer | Awaitable[Answer]]


def event(kind: str, item: object) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def status(code: int, reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    """A `metav1.Status` that reports a failure."""
    base = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**base, "code": code, "reason": reason, "message": message, **more}


def a_list(*items: object, version: str = "10", **metadata: str) -> Json:
    meta: dict[str, str] = {"resourceVersion": version, **metadata}
    return Json({"kind": "List", "metadata": meta, "items": items})


class CannedApi:
    """The server; `seen` holds every request in order of arrival."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.seen: list[Seen] = []
        self.url = ""
        self.always: Answer | Answering = Text("no answer was scripted", status=599)
        self._answers: deque[Answer] = deque()
        self._arrived = asyncio.Condition()

    def will_answer(self, *answers: Answer) -> None:
        self._answers.extend(answers)

    async def until_seen(self, count: int) -> None:
        """Wait until so many requests have arrived in all."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.seen) >= count)

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def drop_connections(self) -> None:
        """Cut every connection, as a server does that goes away."""
        server = self._runner.server
        assert server is not None
        for connection in server.connections:
            connection.force_close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = Seen(
            method=request.method,
            path=request.rel_url.raw_path,
            query=dict(request.query),
            headers=dict(request.headers),
            body=await request.read(),
        )
        async with self._arrived:
            self.seen.append(seen)
            self._arrived.notify_all()
        if self._answers:
            return await _give(request, self._answers.popleft())
        if not callable(self.always):
            return await _give(request, self.always)
        answer = self.always(seen)
        return await _give(request, await answer if isinstance(answer, Awaitable) else answer)


async def _give(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    match answer:
        case Json():
            return web.json_response(answer.body, status=answer.status, headers=answer.headers)
        case Text():
            return web.Response(
                text=answer.body, status=answer.status, content_type=answer.content_type
            )
        case Hang():
            return await _hang()
        case Reset():
            return _drop(request)
        case Cut():
            response = web.StreamResponse(headers={"Content-Length": str(len(answer.body) + 100)})
            await response.prepare(request)
            await response.write(answer.body)
            return _drop(request)
        case NotHttp():
            assert request.transport is not None
            request.transport.write(b"\x15\x03\x01 not http\r\n\r\n")
            return await _hang()
        case Stream():
            return await _stream(request, answer)


async def _stream(request: web.BaseRequest, answer: Stream) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    for piece in answer.pieces:
        if isinstance(piece, bytes):
            await response.write(piece)
        else:
            await asyncio.sleep(piece)
    if answer.then == "end":
        await response.write_eof()
        return response
    return _drop(request) if answer.then == "reset" else await _hang()


def _drop(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _hang() -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")

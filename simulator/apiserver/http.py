"""HTTP: requests as the frontend takes them, and its answers, warnings and watch streams on the wire."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Final, final

import structlog
from aiohttp import web
from multidict import CIMultiDict

from simulator.apiserver import exchange
from simulator.apiserver.errors import too_large

if TYPE_CHECKING:
    from simulator.apiserver.frontend import Frontend
    from simulator.apiserver.store.watch import WatchStream

_log = structlog.get_logger()

_MAX_WARNINGS: Final = 4096
_MAX_WARNING_OF_MANY: Final = 256


@final
class HttpHandler:
    """Handles the requests of all connections."""

    def __init__(self, frontend: "Frontend") -> None:
        self._frontend = frontend

    async def handle(self, request: web.Request) -> web.StreamResponse:
        match await self._frontend.handle(_incoming(request)):
            case exchange.CompleteAnswer() as answer:
                return _respond(answer)
            case exchange.WatchAnswer(stream=stream):
                return await self._watch(request, stream)
            case exchange.ConnectionCut():
                # The returned response is never sent.
                _cut(request)
                return web.Response()

    async def _watch(self, request: web.Request, stream: "WatchStream") -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": exchange.JSON})
        response.enable_chunked_encoding()
        await response.prepare(request)

        def cut() -> None:
            _cut(request)

        watches = self._frontend.open_watches
        watches.add(cut)
        try:
            await _send_lines(response, stream)
        except ConnectionResetError:
            _log.debug("watch client went away", path=request.path)
        finally:
            watches.discard(cut)
        return response


def _incoming(request: web.Request) -> exchange.IncomingRequest:
    async def read() -> bytes:
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise too_large(exchange.MAX_BODY_BYTES) from error

    return exchange.IncomingRequest(
        method=request.method,
        path=request.path,
        query=request.query,
        query_string=request.query_string,
        content_type=request.content_type if "Content-Type" in request.headers else "",
        user_agent=request.headers.get("User-Agent", ""),
        authorization=request.headers.get("Authorization", ""),
        read=read,
    )


def _respond(answer: exchange.CompleteAnswer) -> web.Response:
    headers: CIMultiDict[str] = CIMultiDict({"Content-Type": answer.content_type})
    for warning in _fitting(answer.warnings):
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        headers.add("Warning", f'299 - "{escaped}"')
    return web.Response(status=answer.status, body=answer.encoded, headers=headers)


def _fitting(warnings: list[str]) -> list[str]:
    """Return the warnings, truncated where together they exceed the size of a header."""
    if sum(map(len, warnings)) <= _MAX_WARNINGS:
        return warnings
    fitting: list[str] = []
    left = _MAX_WARNINGS
    for warning in warnings:
        start = warning[: min(_MAX_WARNING_OF_MANY, left)]
        left -= len(start)
        if start:
            fitting.append(start)
    return fitting


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _send_lines(response: web.StreamResponse, stream: "WatchStream") -> None:
    async with aclosing(stream.lines()) as batches:
        async for lines in batches:
            await response.write(lines)
    await response.write_eof()

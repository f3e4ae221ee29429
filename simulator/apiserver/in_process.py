"""The way to the server without HTTP: a request is a call, some forty times cheaper.

`InProcessTransport` is to a `KubeClient` what `kube.transport.Transport` is, and the server answers both
with the same code, its request log and error injection included. What is missing is the wire: certificates,
bytes that are no HTTP, connections that wait. A request passes through the event loop before it reaches the
server and before its answer reaches the client, so that both may be cancelled there, as on a wire.
"""

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, final
from urllib.parse import unquote, urlencode

import yarl
from multidict import MultiDict

from kube.errors import TimedOut, Unreachable, from_status
from kube.transport import lines_of, measured
from simulator.apiserver import exchange
from simulator.apiserver.errors import too_large

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from api.clock import Clock
    from kube.config.connection import Connection
    from kube.transport import ApiRequest
    from simulator.apiserver.frontend import Frontend
    from simulator.apiserver.store.watch import WatchStream


@final
class InProcessTransport:
    """One client's way to the server; of the connection it takes the token alone."""

    def __init__(
        self,
        frontend: "Frontend",
        configuration: "Connection",
        clock: "Clock",
        *,
        user_agent: str,
        timeout_s: float,
    ) -> None:
        self._frontend = frontend
        self._configuration = configuration
        self._clock = clock
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._is_open = False
        self._watches: set[WatchStream] = set()

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """End all watches as Unreachable."""
        self._is_open = False
        self.drop_watches()

    def drop_watches(self) -> None:
        """Cut the watches of this client alone."""
        for stream in list(self._watches):
            stream.cut()

    async def call(self, request: "ApiRequest", *, timeout_s: float | None = None) -> bytes:
        with measured(self._clock, request.method, request.label) as outcome:
            answer = await self._within(timeout_s or self._timeout_s, request)
            if not isinstance(answer, exchange.CompleteAnswer):
                raise Unreachable("a watch instead of an answer", request_sent=True)
            outcome.code = str(answer.status)
            return answer.encoded

    @asynccontextmanager
    async def stream(
        self, request: "ApiRequest", *, idle_timeout_s: float
    ) -> "AsyncIterator[AsyncIterator[bytes]]":
        with measured(self._clock, "WATCH", request.label) as outcome:
            answer = await self._within(self._timeout_s, request)
            outcome.code = "200"
        if not isinstance(answer, exchange.WatchAnswer):
            raise Unreachable("an answer instead of a watch", request_sent=True)
        watch, watches = answer.stream, self._frontend.open_watches
        watches.add(watch.cut)
        self._watches.add(watch)
        try:
            async with (
                aclosing(_batches(watch, idle_timeout_s)) as batches,
                aclosing(lines_of(batches)) as lines,
            ):
                yield lines
        finally:
            watches.discard(watch.cut)
            self._watches.discard(watch)

    async def _within(self, timeout_s: float, request: "ApiRequest") -> "exchange.Answer":
        try:
            async with asyncio.timeout(timeout_s):
                return await self._send(request)
        except TimeoutError as error:
            raise TimedOut("no answer", request_sent=True) from error

    async def _send(
        self, request: "ApiRequest"
    ) -> "exchange.CompleteAnswer | exchange.WatchAnswer":
        if not self._is_open:
            raise RuntimeError("the transport is not open")
        incoming = await self._incoming(request)
        if not self._frontend.is_serving:
            raise Unreachable("the API server does not listen", request_sent=False)
        await asyncio.sleep(0)
        answer = await self._frontend.handle(incoming)
        await asyncio.sleep(0)
        if isinstance(answer, exchange.ConnectionCut):
            raise Unreachable("the connection was reset", request_sent=True)
        if isinstance(answer, exchange.CompleteAnswer) and not 200 <= answer.status <= 299:
            raise from_status(answer.status, answer.encoded)
        return answer

    async def _incoming(self, request: "ApiRequest") -> exchange.IncomingRequest:
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        body = request.body

        async def read() -> bytes:
            content = body or b""
            if len(content) > exchange.MAX_BODY_BYTES:
                raise too_large(exchange.MAX_BODY_BYTES)
            return content

        query = {key: value for key, value in request.query.items() if value is not None}
        return exchange.IncomingRequest(
            method=request.method,
            path=unquote(request.path),
            query=MultiDict(query),
            query_string=yarl.URL(f"/?{urlencode(query)}", encoded=True).query_string,
            content_type="" if body is None else request.content_type,
            user_agent=self._user_agent,
            authorization=token or "",
            read=read,
        )


async def _batches(watch: "WatchStream", idle_timeout_s: float) -> "AsyncGenerator[bytes, None]":
    async with aclosing(watch.lines()) as batches:
        while True:
            async with asyncio.timeout(idle_timeout_s):
                batch = await anext(batches, b"")
            if watch.is_cut:
                raise Unreachable("the watch was cut", request_sent=True)
            if not batch:
                return
            yield batch

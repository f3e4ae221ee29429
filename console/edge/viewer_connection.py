"""A connection of the console's port: aiohttp's, with our answers to requests that are no HTTP, and a slot in the bound.

aiohttp bounds lines and the number of headers, and closes a connection on which no whole request head arrives in time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, final

from aiohttp import web

from console.edge.console_answers import RefusedError, refusal
from telemetry.metrics import CONNECTIONS_DROPPED

if TYPE_CHECKING:
    from console.edge.viewer_limits import ViewerLimits
    from http_edge.connections import ConnectionLimiter, ConnectionSlot

Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@final
class ViewerConnection(web.RequestHandler):
    """Answers the requests of one peer, one after the other."""

    __slots__ = ("_answer_s", "_limiter", "_slot")

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        *,
        limiter: "ConnectionLimiter",
        slot: "ConnectionSlot",
        limits: "ViewerLimits",
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_s,
            lingering_time=limits.linger_s,
            auto_decompress=False,
        )
        self._answer_s = limits.answer_s
        self._limiter = limiter
        self._slot = slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._slot.drop = self.abort
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limiter.release(self._slot)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Cut the connection."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(  # noqa: PLR0917  # aiohttp's own signature
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP, or too long; whatever else fails is answered by the application."""
        if request.writer.output_size:
            raise ConnectionResetError("the answer broke off")
        text = "the request is no HTTP, or a part of it is too long"
        answer = refusal(RefusedError(HTTPStatus(status), text))
        answer.force_close()
        return answer

    async def answer(self, answering: Answering, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; its connection is not dropped for another one's sake meanwhile."""
        self._limiter.mark_held(self._slot)
        try:
            response = await answering(request)
            async with asyncio.timeout(self._answer_s):
                # aiohttp would do both, for ever.
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            CONNECTIONS_DROPPED.labels("answer").inc()
            self.abort()
            raise ConnectionResetError("the peer does not read") from None
        finally:
            self._limiter.mark_active(self._slot)
        return response

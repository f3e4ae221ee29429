"""The console's port: opened, bounded, closed in order.

A new connection beyond the bound takes the place of the oldest that waits for a request, and never that of a stream.
When the port closes, streams get their last event, and requests under way their answers.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, Self, final

from aiohttp import web

from console.edge.viewer_connection import ViewerConnection
from console.edge.viewer_limits import ViewerLimits
from http_edge import open_files
from http_edge.connections import Acceptor, ConnectionLimiter
from http_edge.limits import Limits

if TYPE_CHECKING:
    import socket
    import ssl
    from types import TracebackType

    from console.edge.console_application import ConsoleApplication
    from http_edge.connections import ConnectionSlot

_CLOSING: Final = "the console is being stopped; the page connects again"


@final
class ConsolePort:
    """An async context manager that answers on a port inside the context, and closes it at its end."""

    def __init__(
        self,
        listeners: "list[socket.socket]",
        context: "ssl.SSLContext | None" = None,
        *,
        limits: ViewerLimits | None = None,
    ) -> None:
        """Take sockets that listen (`open_listeners`); without a TLS context it is plain HTTP."""
        self._listeners = listeners
        self._context = context
        self._limits = limits or ViewerLimits()
        self._tasks = asyncio.TaskGroup()
        self._acceptors: list[asyncio.Task[NoReturn]] = []
        self._served: tuple[ConsoleApplication, web.Server] | None = None

    @property
    def number(self) -> int:
        number: int = self._listeners[0].getsockname()[1]
        return number

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        await self.close()
        await self._tasks.__aexit__(None, None, None)

    def serve(self, application: "ConsoleApplication") -> None:
        """Answer from now on; connections that came before have waited."""
        loop = asyncio.get_running_loop()
        connections = min(self._limits.connections, open_files.limit() // 2)
        limits = Limits(connections=connections, body_bytes=0)
        limiter = ConnectionLimiter(connections)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            connection = request.protocol
            assert isinstance(connection, ViewerConnection), "connections are made below"
            return await connection.answer(application.handle, request)

        # A viewer that goes away ends its handler, which would wait for the next event otherwise.
        server = web.Server(answer, handler_cancellation=True)
        self._served = application, server

        def connect(slot: "ConnectionSlot") -> ViewerConnection:
            return ViewerConnection(server, loop, limiter=limiter, slot=slot, limits=self._limits)

        for listener in self._listeners:
            acceptor = Acceptor(listener, connect, self._context, limiter=limiter, limits=limits)
            self._acceptors.append(self._tasks.create_task(acceptor.run(), name="accepting"))

    async def close(self) -> None:
        """Stop accepting, end streams, let requests under way finish in time, close connections. Idempotent."""
        for acceptor in self._acceptors:
            acceptor.cancel()
        await asyncio.gather(*self._acceptors, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        served, self._served = self._served, None
        if served is not None:
            application, server = served
            application.streams.end_all(_CLOSING)
            server.pre_shutdown()
            await server.shutdown(self._limits.close_s)

"""The one port of the process, opened and closed in order.

`server.http.app` says what is answered on it, `http_edge.protocol` how; `http_edge.limits` bounds all.
"""

import asyncio
import socket
from typing import TYPE_CHECKING, NoReturn, Protocol, Self, final

from http_edge.body import LargeBodies
from http_edge.connections import Acceptor, ConnectionLimiter
from http_edge.listening_sockets import open_listeners
from http_edge.peer_connection import PortState
from http_edge.protocol import HttpProtocol
from http_edge.replies import ReplyEncoder

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType

    from api.clock import Clock
    from http_edge.connections import ConnectionSlot
    from http_edge.limits import Limits
    from http_edge.routes import Routes


class Address(Protocol):
    """Where to listen."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@final
class Port:
    """The one port of the process; an async context manager that opens and closes it."""

    def __init__(
        self,
        routes: "Routes",
        listen: Address,
        context: "ssl.SSLContext | None",
        *,
        clock: "Clock",
        limits: "Limits",
    ) -> None:
        self._listen = listen
        self._context = context
        self._protocol: Callable[[PortState, ConnectionSlot], asyncio.Protocol] = HttpProtocol
        if context is not None:
            # Late: libraries of HTTP/2, which plain TCP does not speak, are 1.5 MiB on every node.
            from http_edge.negotiated_protocol import NegotiatedProtocol  # noqa: PLC0415

            self._protocol = NegotiatedProtocol
        self._limits = limits
        self._tasks = asyncio.TaskGroup()
        self._state = PortState(
            routes=routes,
            limits=self._limits,
            limiter=ConnectionLimiter(self._limits.connections),
            encoder=ReplyEncoder(clock),
            tasks=self._tasks,
            large_bodies=LargeBodies(self._limits.large_bodies),
        )
        self._acceptors: list[asyncio.Task[NoReturn]] = []

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            ListenError: the address is in use, or is none of this machine's.
        """
        listeners = await open_listeners(self._listen.host, self._listen.port)
        await self._tasks.__aenter__()
        for listener in listeners:
            task = self._tasks.create_task(self._accept(listener), name="accepting")
            self._acceptors.append(task)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        await self.close()
        await self._tasks.__aexit__(None, None, None)

    def send_away(self) -> None:
        """Close each connection with its next answer, so that clients connect to another replica."""
        self._state.is_draining = True

    async def close(self) -> None:
        """Stop accepting, let requests under way finish in time, close connections. Idempotent."""
        for acceptor in self._acceptors:
            acceptor.cancel()
        await asyncio.gather(*self._acceptors, return_exceptions=True)
        self._state.is_draining = True
        connections = tuple(self._state.connections)
        finishing = [
            future for connection in connections if (future := connection.finish()) is not None
        ]
        if finishing:
            await asyncio.wait(finishing, timeout=self._limits.finish_s)
        for connection in connections:
            connection.close()

    async def _accept(self, listener: socket.socket) -> NoReturn:
        with listener:
            await Acceptor(
                listener,
                lambda slot: self._protocol(self._state, slot),
                self._context,
                limiter=self._state.limiter,
                limits=self._limits,
            ).run()

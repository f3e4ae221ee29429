"""The one port of the process, opened and closed in order.

`server.http.app` is the application on it; `server.http.connections` and `server.http.limits` bound its
connections.
"""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final, NoReturn, Self, final

import structlog
from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError

from kube.errors import one_line
from server.http.app import Handler
from server.http.connections import (
    Acceptor,
    ConnectionLimiter,
    ConnectionSlot,
    LimitedConnection,
)
from server.http.limits import Limits

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from server.settings import ListenSettings

FINISH_WITHIN_S: Final = 10.0
"""How long requests under way may take on shutdown: a bind, 4 s, and the read after it, 4 s."""

_BACKLOG: Final = 1024
"""Connections that wait to be accepted, as when all API servers connect at once; the system may allow fewer."""

_log = structlog.get_logger()


class ListenError(Exception):
    """The port cannot be opened; the text says which and why."""


@final
class Port:
    """The one port of the process; an async context manager that opens and closes it."""

    def __init__(
        self,
        app: web.Application,
        listen: "ListenSettings",
        context: "ssl.SSLContext | None",
        *,
        limits: Limits | None = None,
    ) -> None:
        self._listen = listen
        self._context = context
        self._limits = limits or Limits.of(listen)
        self._limiter = ConnectionLimiter(self._limits.connections)
        self._runner = web.AppRunner(app, shutdown_timeout=FINISH_WITHIN_S)
        self._logger = _logger()
        self._sends_away = False
        app.middlewares.append(_begin)
        app.on_response_prepare.append(self._prepare)
        self._accepting = asyncio.TaskGroup()
        self._acceptors: list[asyncio.Task[NoReturn]] = []

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            ListenError: the address is in use, or is none of this machine's.
        """
        host, port = self._listen.host, self._listen.port
        if self._limits.connections < self._listen.max_connections:
            _log.warning(
                "fewer connections than configured, because of the limit of open files",
                connections=self._limits.connections,
                max_connections=self._listen.max_connections,
            )
        try:
            listeners = await _listeners(host, port)
        except OSError as error:
            raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        await self._runner.setup()
        await self._accepting.__aenter__()
        for listener in listeners:
            task = self._accepting.create_task(self._accept(listener), name="accepting")
            self._acceptors.append(task)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        await self.close()
        await self._accepting.__aexit__(None, None, None)

    def send_away(self) -> None:
        """Close each connection with its next answer, so that clients connect to another replica."""
        self._sends_away = True

    async def close(self) -> None:
        """Stop accepting, let requests under way finish in time, close connections. Idempotent."""
        for acceptor in self._acceptors:
            acceptor.cancel()
        await asyncio.gather(*self._acceptors, return_exceptions=True)
        await self._runner.cleanup()

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        _connection_of(request).answer(request)
        response.headers.popall(hdrs.SERVER, None)
        if self._sends_away:
            response.force_close()
            # aiohttp has chosen its headers by now. Without this one a client sends its next request
            # into a connection that is being closed.
            response.headers[hdrs.CONNECTION] = "close"

    async def _accept(self, listener: socket.socket) -> NoReturn:
        with listener:
            await Acceptor(
                listener,
                self._connection,
                self._context,
                limiter=self._limiter,
                limits=self._limits,
            ).run()

    def _connection(self, slot: ConnectionSlot) -> LimitedConnection:
        server = self._runner.server
        assert server is not None, "the runner is set up before the first connection"
        return LimitedConnection(
            server,
            self._limiter,
            slot,
            head_s=self._limits.head_s,
            access_log=None,
            logger=self._logger,
            keepalive_timeout=self._limits.keep_alive_s,
            lingering_time=self._limits.linger_s,
            auto_decompress=False,
        )


@web.middleware
async def _begin(request: web.Request, handler: Handler) -> web.StreamResponse:
    _connection_of(request).begin(request)
    return await handler(request)


def _connection_of(request: web.Request) -> LimitedConnection:
    connection = request.protocol
    assert isinstance(connection, LimitedConnection), "the port makes no others"
    return connection


async def _listeners(host: str, port: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            listeners.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    for listener in listeners:
        listener.settimeout(0)
    return listeners


def _logger() -> logging.Logger:
    logger = logging.getLogger("server.http")
    logger.addFilter(_in_one_line)
    return logger


def _in_one_line(record: logging.LogRecord) -> bool:
    """Make a peer's malformed HTTP one warning; aiohttp logs an error with a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | web.RequestPayloadError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = None
        record.msg, record.args = "malformed HTTP request: %s", (one_line(str(error)),)
    return True

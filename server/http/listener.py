"""The port: opened, and closed in good order.

Which application answers on it is `server.http.app`'s, who may come in and for how long
`server.http.connections`'.
"""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final, NoReturn, Self, final

import structlog
from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError

from kube.errors import one_line
from server import open_files
from server.http.app import SHORTCUTS
from server.http.connections import (
    Acceptor,
    ConnectionLimiter,
    ConnectionSlot,
    ConnectionTimeouts,
    LimitedConnection,
)

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from server.settings import ListenSettings

KEEP_ALIVE_S: Final = 300.0
"""The API server and kube-scheduler close idle connections after 90 s. A server that closes first may
do so while a request is on its way, which costs a failed pod creation."""
FINISH_WITHIN_S: Final = 10.0
"""How long requests under way may take on shutdown: a bind, 4 s, and the read after it, 4 s."""

LINGER_S: Final = 2.0
"""How long what is left of a body is read after its request was refused, so that the peer reads why."""
_PATIENCE: Final = ConnectionTimeouts()
_BACKLOG: Final = 1024
"""Who waits to be accepted, as when all API servers come at once; the system may allow fewer."""

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
        patience: ConnectionTimeouts = _PATIENCE,
    ) -> None:
        self._listen = listen
        self._context = context
        self._patience = patience
        self._shortcuts = app.get(SHORTCUTS, {})
        # The other half is for the API server, files and what is on its way out.
        self._most = min(listen.max_connections, open_files.limit() // 2)
        self._places = ConnectionLimiter(self._most)
        self._runner = web.AppRunner(app, shutdown_timeout=FINISH_WITHIN_S)
        self._logger = _logger()
        self._sends_away = False
        app.on_response_prepare.append(self._prepare)
        self._entering = asyncio.TaskGroup()
        self._entrances: list[asyncio.Task[NoReturn]] = []

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            CannotListen: the address is in use, or is none of this machine's.
        """
        host, port = self._listen.host, self._listen.port
        if self._most < self._listen.max_connections:
            _log.warning(
                "fewer connections than configured, because of the limit of open files",
                connections=self._most,
                max_connections=self._listen.max_connections,
            )
        try:
            listeners = await _listeners(host, port)
        except OSError as error:
            raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        await self._runner.setup()
        await self._entering.__aenter__()
        for listener in listeners:
            task = self._entering.create_task(self._enter(listener), name="accepting")
            self._entrances.append(task)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Close it."""
        await self.close()
        await self._entering.__aexit__(None, None, None)

    def send_away(self) -> None:
        """Close each connection with its next answer, so that clients connect anew, elsewhere."""
        self._sends_away = True
        # Their answers leave without a look at the response.
        self._shortcuts.clear()

    async def close(self) -> None:
        """Stop accepting, let requests under way finish in time, close connections. Idempotent."""
        for entrance in self._entrances:
            entrance.cancel()
        await asyncio.gather(*self._entrances, return_exceptions=True)
        await self._runner.cleanup()

    async def _prepare(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers.popall(hdrs.SERVER, None)
        if self._sends_away:
            response.force_close()
            # aiohttp has written its headers by now. A client that is not told sends its next
            # request into a connection that is being closed.
            response.headers["Connection"] = "close"

    async def _enter(self, listener: socket.socket) -> NoReturn:
        with listener:
            await Acceptor(
                listener,
                self._connection,
                self._context,
                places=self._places,
                patience=self._patience,
            ).run()

    def _connection(self, place: ConnectionSlot) -> LimitedConnection:
        server = self._runner.server
        assert server is not None, "the runner is set up before anybody can connect"
        return LimitedConnection(
            server,
            self._places,
            place,
            head_s=self._patience.head_s,
            shortcuts=self._shortcuts,
            access_log=None,
            logger=self._logger,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            auto_decompress=False,
        )


async def _listeners(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of the host."""
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
    """Let a peer's malformed HTTP be one warning; aiohttp tells it as an error with a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | web.RequestPayloadError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = None
        record.msg, record.args = "malformed HTTP request: %s", (one_line(str(error)),)
    return True

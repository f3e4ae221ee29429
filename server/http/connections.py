"""Connections to the port: bounded in number, and in the time until a request's head is complete.

aiohttp bounds neither, and treats a peer in its handshake, a peer that sends a header an hour and the API
server alike. Here

* a handshake, and a request's head from its first byte on, end within `Limits`;
* a connection without a request may stay: clients open some in advance, and closing one just as its first
  request arrives costs a pod creation;
* with all slots taken, or no file left to open, a new connection takes the slot of the oldest one without
  any request so far, or else of the one idle longest. A flood cannot keep the API server or kube-scheduler
  out, and connections in use stay.

`server.http.body` bounds the time of a body.
"""

import asyncio
import errno
import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, final

import structlog
from aiohttp import hdrs, web

from telemetry.metrics import CONNECTIONS_DROPPED, TASK_FAILURES

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from aiohttp import StreamReader

    from server.http.limits import Limits

_ACCEPT_AGAIN_S: Final = 0.5
"""After a failure to accept."""
_CLOSED_WITHIN_S: Final = 0.01
"""A dropped connection has returned its file by then."""
_SHORT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)

_log = structlog.get_logger()


@final
class ConnectionSlot:
    """One connection's place; `drop` closes the connection at once, whatever its state."""

    __slots__ = ("drop",)

    def __init__(self, drop: "Callable[[], object]") -> None:
        self.drop = drop


@final
class ConnectionLimiter:
    """The slots of all connections."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # In the order of arrival, or of the latest request.
        self._unused: OrderedDict[ConnectionSlot, None] = OrderedDict()
        self._active: OrderedDict[ConnectionSlot, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unused) + len(self._active)

    def acquire(self, drop: "Callable[[], object]") -> ConnectionSlot:
        """Return a slot for a new connection, another connection's where all are taken."""
        if len(self) >= self._limit:
            self.evict("limit")
        slot = ConnectionSlot(drop)
        self._unused[slot] = None
        return slot

    def evict(self, cause: str) -> bool:
        """Drop the connection that is worth least; return whether there was one."""
        slots = self._unused or self._active
        if not slots:
            return False
        slot, _ = slots.popitem(last=False)
        CONNECTIONS_DROPPED.labels(cause).inc()
        slot.drop()
        return True

    def mark_active(self, slot: ConnectionSlot) -> None:
        """Note the head of a request, or a part of its body."""
        if slot in self._active:
            self._active.move_to_end(slot)
        elif slot in self._unused:
            del self._unused[slot]
            self._active[slot] = None

    def release(self, slot: ConnectionSlot) -> bool:
        """Free the slot; return whether it was still the connection's own. Idempotent."""
        for slots in (self._unused, self._active):
            if slot in slots:
                del slots[slot]
                return True
        return False


@final
class LimitedConnection(web.RequestHandler):
    """aiohttp's connection with a slot, and a deadline for the head of each request.

    `begin` and `answer` come from the application (`server.http.listener.Port`): data in between, and until
    the body's end, belong to a request; any other data begin a head.
    """

    __slots__ = (
        "_awaited_body",
        "_call_later",
        "_head_deadline",
        "_head_s",
        "_is_handled",
        "_limiter",
        "_slot",
    )

    def __init__(
        self,
        server: web.Server,
        limiter: ConnectionLimiter,
        slot: ConnectionSlot,
        *,
        head_s: float,
        **options: Any,  # noqa: ANN401  # the library's
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, **options)
        self._call_later = loop.call_later
        self._limiter = limiter
        self._slot = slot
        self._head_s = head_s
        self._head_deadline: asyncio.TimerHandle | None = None
        self._is_handled = False
        self._awaited_body: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen; the handshake, if any, is over."""
        self._slot.drop = cast("asyncio.Transport", transport).abort
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._clear_deadline()
        self._limiter.release(self._slot)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the first byte of a head starts its deadline.

        `data` may be empty: aiohttp resumes postponed data so, and uvloop reports the end of a handshake.
        """
        is_body = self._is_handled or self._is_body_awaited()
        super().data_received(data)
        if not data:
            return
        if is_body:
            self._limiter.mark_active(self._slot)
        elif self._head_deadline is None:
            self._head_deadline = self._call_later(self._head_s, self._drop_slow_head)

    def begin(self, request: web.BaseRequest) -> None:
        """Note that the head of a request is complete."""
        self._is_handled = True
        self._end_head(request)

    def answer(self, request: web.BaseRequest) -> None:
        """Note that the answer to a request begins; the rest of its body may still come."""
        self._is_handled = False
        self._end_head(request)

    def handle_error(  # noqa: PLR0917  # the library's signature
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer malformed HTTP, without the name and version of the server."""
        response = super().handle_error(request, status, exc, message)
        # aiohttp writes its own name and versions where there is none.
        response.headers[hdrs.SERVER] = ""
        return response

    def _end_head(self, request: web.BaseRequest) -> None:
        self._clear_deadline()
        self._awaited_body = request.content
        self._limiter.mark_active(self._slot)

    def _is_body_awaited(self) -> bool:
        if self._awaited_body is not None and self._awaited_body.is_eof():
            self._awaited_body = None
        return self._awaited_body is not None

    def _drop_slow_head(self) -> None:
        self._head_deadline = None
        if self._limiter.release(self._slot):
            CONNECTIONS_DROPPED.labels("head").inc()
            self._slot.drop()

    def _clear_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None


@final
class Acceptor:
    """Accepts the connections of one listening socket.

    An asyncio server does not report connections before the end of their handshake, and a flood consists of
    those.
    """

    def __init__(
        self,
        listener: "socket.socket",
        build: "Callable[[ConnectionSlot], LimitedConnection]",
        context: "ssl.SSLContext | None",
        *,
        limiter: ConnectionLimiter,
        limits: "Limits",
    ) -> None:
        """Take a non-blocking socket; without a context it is plain TCP."""
        self._listener = listener
        self._build = build
        self._context = context
        self._limiter = limiter
        self._handshake_s = limits.handshake_s if context is not None else None

    async def run(self) -> NoReturn:
        """Accept until cancelled; that also cancels handshakes under way."""
        async with asyncio.TaskGroup() as group:
            while True:
                # Not `sock_accept`: cancelled at the wrong moment it loses the accepted socket.
                # One at a time, so that connections under way get their turn in a flood.
                await self._wait_until_readable()
                try:
                    accepted, _ = self._listener.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    continue
                except OSError as error:
                    await self._recover(error)
                    continue
                accepted.settimeout(0)
                task = group.create_task(self._connect(accepted), name="handshake")
                task.add_done_callback(functools.partial(_close_cancelled, accepted))

    async def _recover(self, error: OSError) -> None:
        """Wait before the next attempt; where files are short, for the file of an evicted connection."""
        TASK_FAILURES.labels("accepting").inc()
        if error.errno in _SHORT_OF_FILES and self._limiter.evict("files"):
            await asyncio.sleep(_CLOSED_WITHIN_S)
            return
        _log.error("cannot accept a connection", error=error.strerror)
        await asyncio.sleep(_ACCEPT_AGAIN_S)

    async def _wait_until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        is_readable = asyncio.Event()
        loop.add_reader(self._listener, is_readable.set)
        try:
            await is_readable.wait()
        finally:
            loop.remove_reader(self._listener)

    async def _connect(self, accepted: "socket.socket") -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs as one"
        slot = self._limiter.acquire(task.cancel)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._build(slot),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s,
            )
        except OSError:  # OpenSSL's errors and the time-out are of these
            if self._limiter.release(slot):
                CONNECTIONS_DROPPED.labels("handshake").inc()
        except Exception:  # noqa: BLE001  # one peer's failure must not end all other connections
            TASK_FAILURES.labels("accepting").inc()
            _log.exception("connection failed before its first request")
            self._limiter.release(slot)
            accepted.close()
        except BaseException:
            self._limiter.release(slot)
            raise


def _close_cancelled(accepted: "socket.socket", task: "asyncio.Task[None]") -> None:
    """Close a socket that has no transport, as when its task was cancelled before it began."""
    if task.cancelled():
        accepted.close()

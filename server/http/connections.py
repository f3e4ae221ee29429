"""Connections to the port: bounded in number, and in the time that a peer may take to ask something.

aiohttp bounds neither, and makes no difference between a peer that shakes hands, one that sends a
header an hour, and the API server. Here

* a handshake, and a request's head once its first byte is there, end within `ConnectionTimeouts`;
* a connection that waits for a request may wait: clients open some in advance, and closing one just
  as its first request comes costs a pod creation;
* where all places are taken, or the process may open no more files, a newcomer gets the place of one
  that never asked anything, the oldest first, and where there is none, of the one that has been silent
  longest. So a flood cannot keep the API server or kube-scheduler out, and connections in use stay.

The time that a body may take is `server.http.body`'.
"""

import asyncio
import errno
import functools
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, final

import structlog
from aiohttp import hdrs, web

from server.http.fast_path import FastPathHandler
from telemetry.metrics import CONNECTIONS_DROPPED, TASK_FAILURES

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

_ACCEPT_AGAIN_S: Final = 0.5
"""After a failure to accept."""
_CLOSED_WITHIN_S: Final = 0.01
"""A connection that was dropped has given its file back by then."""
_SHORT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTimeouts:
    """How long a peer may take. The API server gives up after 3 s, kube-scheduler after 5 s."""

    handshake_s: float = 5.0
    head_s: float = 5.0
    """From the first byte of a request to the end of its head."""


@final
class ConnectionSlot:
    """One connection's; `drop` closes it at once, whatever state it is in."""

    __slots__ = ("drop",)

    def __init__(self, drop: "Callable[[], object]") -> None:
        self.drop = drop


@final
class ConnectionLimiter:
    """Who is connected, at most so many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Each in the order in which they came, or last asked something.
        self._silent: OrderedDict[ConnectionSlot, None] = OrderedDict()
        self._asking: OrderedDict[ConnectionSlot, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many places are taken."""
        return len(self._silent) + len(self._asking)

    def take(self, drop: "Callable[[], object]") -> ConnectionSlot:
        """Give a newcomer a place, somebody else's where there is no other."""
        if len(self) >= self._limit:
            self.make_room("limit")
        place = ConnectionSlot(drop)
        self._silent[place] = None
        return place

    def make_room(self, cause: str) -> bool:
        """Drop the connection that is worth least; say whether there was one."""
        places = self._silent or self._asking
        if not places:
            return False
        loser, _ = places.popitem(last=False)
        CONNECTIONS_DROPPED.labels(cause).inc()
        loser.drop()
        return True

    def ask(self, place: ConnectionSlot) -> None:
        """Note that the head of a request has come, or some of its body."""
        if place in self._asking:
            self._asking.move_to_end(place)
        elif place in self._silent:
            del self._silent[place]
            self._asking[place] = None

    def leave(self, place: ConnectionSlot) -> bool:
        """Free the place; say whether it was still the connection's own. Idempotent."""
        for places in (self._silent, self._asking):
            if place in places:
                del places[place]
                return True
        return False


@final
class LimitedConnection(FastPathHandler):
    """aiohttp's connection with shortcuts, which does not wait for the rest of a head for ever."""

    __slots__ = ("_head_s", "_impatience", "_place", "_places")

    def __init__(
        self,
        server: web.Server,
        places: ConnectionLimiter,
        place: ConnectionSlot,
        *,
        head_s: float,
        **options: Any,  # noqa: ANN401  # the library's
    ) -> None:
        """Take `shortcuts`, and what aiohttp's own takes, as `options`."""
        super().__init__(server, **options)
        self._places = places
        self._place = place
        self._head_s = head_s
        self._impatience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen; the handshake, if any, is over."""
        self._place.drop = cast("asyncio.Transport", transport).abort
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the place."""
        self._calm_down()
        self._places.leave(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; from a head's first byte the rest has to come in time.

        Nothing may come as well: aiohttp goes on so with what it had put off, and uvloop tells of a
        handshake's end, and of a write's.
        """
        taken = self.taken
        super().data_received(data)
        if self.taken != taken or not self._is_waiting():
            self._calm_down()
            self._places.ask(self._place)
        elif data and self._impatience is None:
            self._impatience = self._loop.call_later(self._head_s, self._lose_patience)

    def handle_error(  # noqa: PLR0917  # the library's signature
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request of the application's; say of the server what others are told."""
        response = super().handle_error(request, status, exc, message)
        # aiohttp writes its own name and versions where there is none.
        response.headers[hdrs.SERVER] = ""
        return response

    def _is_waiting(self) -> bool:
        """Say whether no whole head is there. A new connection waits before its task has run."""
        waiter = self._waiter
        return self._request_count == 0 or (waiter is not None and not waiter.done())

    def _lose_patience(self) -> None:
        self._impatience = None
        if self._is_waiting() and self._places.leave(self._place):
            CONNECTIONS_DROPPED.labels("head").inc()
            self._place.drop()

    def _calm_down(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None


@final
class Acceptor:
    """Where connections come in: one listening socket.

    We accept ourselves, because an asyncio server tells of no connection whose handshake is not over,
    and those are what a flood is made of.
    """

    def __init__(
        self,
        listener: "socket.socket",
        build: "Callable[[ConnectionSlot], LimitedConnection]",
        context: "ssl.SSLContext | None",
        *,
        places: ConnectionLimiter,
        patience: ConnectionTimeouts,
    ) -> None:
        """Take a non-blocking socket; without a context it is plain TCP."""
        self._listener = listener
        self._build = build
        self._context = context
        self._places = places
        self._handshake_s = patience.handshake_s if context is not None else None

    async def run(self) -> NoReturn:
        """Let connections in until cancelled, handshakes under way included."""
        async with asyncio.TaskGroup() as group:
            while True:
                # Not `sock_accept`: cancelled at the wrong moment it loses what it has accepted.
                # One at a time, so that where many wait, those who are in get their turn.
                await self._until_somebody_waits()
                try:
                    accepted, _ = self._listener.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    continue
                except OSError as error:
                    await self._recover(error)
                    continue
                accepted.settimeout(0)
                task = group.create_task(self._let_in(accepted), name="handshake")
                task.add_done_callback(functools.partial(_close_cancelled, accepted))

    async def _recover(self, error: OSError) -> None:
        """Wait until it may go better; where files are short, for a connection that gives its own."""
        TASK_FAILURES.labels("accepting").inc()
        if error.errno in _SHORT_OF_FILES and self._places.make_room("files"):
            await asyncio.sleep(_CLOSED_WITHIN_S)
            return
        _log.error("cannot accept a connection", error=error.strerror)
        await asyncio.sleep(_ACCEPT_AGAIN_S)

    async def _until_somebody_waits(self) -> None:
        loop = asyncio.get_running_loop()
        is_readable = asyncio.Event()
        loop.add_reader(self._listener, is_readable.set)
        try:
            await is_readable.wait()
        finally:
            loop.remove_reader(self._listener)

    async def _let_in(self, accepted: "socket.socket") -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs as one"
        place = self._places.take(task.cancel)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._build(place),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s,
            )
        except OSError:  # OpenSSL's errors and the time-out are of these
            if self._places.leave(place):
                CONNECTIONS_DROPPED.labels("handshake").inc()
        except Exception:  # noqa: BLE001  # what one peer can cause must not end all others
            TASK_FAILURES.labels("accepting").inc()
            _log.exception("connection failed before its first request")
            self._places.leave(place)
            accepted.close()
        except BaseException:
            self._places.leave(place)
            raise


def _close_cancelled(accepted: "socket.socket", task: "asyncio.Task[None]") -> None:
    """Close a socket that nobody has taken over, as when its task was cancelled before it began."""
    if task.cancelled():
        accepted.close()

"""Connections to the port, bounded in number, and accepted.

* A handshake ends within `Limits`; `http_edge.peer_connection` bounds what follows.
* A connection without a request may stay: clients open some in advance, and closing one just as its first
  request arrives costs a pod creation.
* With all slots taken, or no file left to open, a new connection takes the slot of the oldest one without
  any request so far, or else of the one idle longest. A flood cannot keep the API server or kube-scheduler
  out, and connections in use stay; those that are marked as held stay in any case.
"""

import asyncio
import errno
import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from telemetry.metrics import CONNECTIONS_DROPPED, TASK_FAILURES

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from http_edge.limits import Limits

_ACCEPT_AGAIN_S: Final = 0.5
"""Seconds after a failure to accept."""
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
        self._held: OrderedDict[ConnectionSlot, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unused) + len(self._active) + len(self._held)

    def acquire(self, drop: "Callable[[], object]") -> ConnectionSlot:
        """Return a slot for a new connection, another connection's where all are taken.

        Where all are held, the new connection is dropped.
        """
        slot = ConnectionSlot(drop)
        if len(self) >= self._limit and not self.evict("limit"):
            CONNECTIONS_DROPPED.labels("limit").inc()
            drop()
        else:
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
        """Note the head of a request, or a part of its body; for a held one, the end of its request."""
        if slot in self._active:
            self._active.move_to_end(slot)
        elif self.release(slot):
            self._active[slot] = None

    def mark_held(self, slot: ConnectionSlot) -> None:
        """Note a request whose connection is not to be dropped for another one's sake."""
        if self.release(slot):
            self._held[slot] = None

    def release(self, slot: ConnectionSlot) -> bool:
        """Free the slot; return whether it was still the connection's own. Idempotent."""
        for slots in (self._unused, self._active, self._held):
            if slot in slots:
                del slots[slot]
                return True
        return False


@final
class Acceptor:
    """Accepts the connections of one listening socket.

    An asyncio server does not report connections before the end of their handshake, and a flood consists of
    those.
    """

    def __init__(
        self,
        listener: "socket.socket",
        build: "Callable[[ConnectionSlot], asyncio.Protocol]",
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

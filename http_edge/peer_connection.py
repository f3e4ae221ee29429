"""A connection, whichever protocol is spoken on it: its slot, its deadline, its end.

`http_edge.protocol` and `http_edge.http2.http2_protocol` say what it waits for (`Wait`); how long, and what
follows when it is over, is the same for both. There is one timer a connection.
"""

import asyncio
import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

import structlog

from http_edge.body import LargeBodies, refusal_of_body
from http_edge.replies import Reply, ReplyEncoder, error_reply
from http_edge.routes import Routes
from telemetry.metrics import CONNECTIONS_DROPPED, TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from http_edge.connections import ConnectionLimiter, ConnectionSlot
    from http_edge.limits import Limits
    from http_edge.routes import Endpoint, Headers

_log = structlog.get_logger()


class Wait(enum.Enum):
    """What a connection waits for."""

    FIRST_REQUEST = enum.auto()
    REQUEST = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    DECISION = enum.auto()
    """Without a deadline here."""
    READER = enum.auto()
    """The peer reads no answers."""
    REMAINDER = enum.auto()
    """Remainder of a body that is discarded."""
    GOODBYE = enum.auto()
    """Answers that are on their way, and the peer's end of TLS."""


class OpenConnection(Protocol):
    """The protocol of a connection, as the port and the connection's deadline see it."""

    def finish(self) -> "asyncio.Future[None] | None":
        """Close after the requests under way; None where there are none."""

    def close(self) -> None:
        """Close, with the answers so far delivered. Idempotent."""

    def expire(self, wait: Wait) -> None:
        """Act on the end of the time for a request, a body or the rest of one."""


@final
@dataclass(slots=True, kw_only=True)
class PortState:
    """What the connections of one port share."""

    routes: Routes
    limits: "Limits"
    limiter: "ConnectionLimiter"
    encoder: ReplyEncoder
    tasks: asyncio.TaskGroup
    large_bodies: LargeBodies
    connections: set[OpenConnection] = field(default_factory=set)
    is_draining: bool = False
    """Whether each connection ends with its next answer."""


@final
class PeerConnection:
    """What a protocol knows of its connection, and does with it."""

    __slots__ = (
        "_deadline",
        "_finished",
        "_is_paused",
        "_loop",
        "_number",
        "_port",
        "_protocol",
        "_slot",
        "_used_at",
        "_wait",
        "is_over",
        "is_writable",
        "transport",
    )

    transport: asyncio.Transport
    _protocol: OpenConnection

    def __init__(self, port: PortState, slot: "ConnectionSlot") -> None:
        self._port = port
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self.is_over = False
        """Whether it is closed, or about to be; nothing is watched then."""
        self.is_writable = True
        self._used_at = 0.0
        self._is_paused = False
        self._wait = Wait.FIRST_REQUEST
        self._number = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._finished: asyncio.Future[None] | None = None

    def open(self, protocol: OpenConnection, transport: asyncio.Transport) -> None:
        """Take part in the port; the handshake, if any, is over."""
        self.transport = transport
        self._protocol = protocol
        self._slot.drop = transport.abort
        self._port.connections.add(protocol)
        self.set_deadline()

    def lose(self) -> None:
        """Free the slot of a connection that the transport has lost."""
        self.is_over = True
        self._port.connections.discard(self._protocol)
        self._port.limiter.release(self._slot)
        self._clear_deadline()
        self._finish()
        # Each would keep the other until garbage is collected.
        del self._protocol

    def close(self) -> None:
        """Close, with what is written so far delivered."""
        self.is_over = True
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()
        self._wait = Wait.GOODBYE
        self.set_deadline()
        self.transport.close()
        self._finish()

    def finished(self) -> "asyncio.Future[None]":
        """Return what is done when the connection is over."""
        self._finished = self._loop.create_future()
        return self._finished

    def mark_active(self) -> None:
        """Note the head of a request, or a part of its body."""
        if self._port.limits.evicts_idle_first:
            self._port.limiter.mark_active(self._slot)

    def note_use(self) -> None:
        """Note an answer, or what is as good: the time for the next request begins."""
        self._used_at = self._loop.time()

    def is_gone(self) -> bool:
        """Return whether no answer is to be written; dropped, the protocol may not have been told so yet."""
        return self.is_over or self.transport.is_closing()

    def refusal_of(
        self, endpoint: "Endpoint", headers: "Headers", length: int | None
    ) -> Reply | None:
        """Return the answer to a request whose body is not read, or None."""
        unread = endpoint.refusal_of(self.transport, headers) or refusal_of_body(
            headers, length, self._port.limits
        )
        return None if unread is None else endpoint.answer_unread(unread, self.remote())

    def remote(self) -> str | None:
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else None

    # The deadline, and whether to read on.

    def watch(self, wait: Wait, number: int = 0, *, is_held: bool) -> None:
        """Set the deadline of what is waited for now, the `number`-th of its kind.

        Reading ceases while it is held.
        """
        if self.is_over:
            return
        if is_held != self._is_paused:
            self._is_paused = is_held
            (self.transport.pause_reading if is_held else self.transport.resume_reading)()
        if wait is not self._wait or number != self._number:
            self._wait, self._number = wait, number
            self.set_deadline()

    def set_deadline(self) -> None:
        """Let the time for what is waited for begin now."""
        self._clear_deadline()
        within_s = self._within_s()
        if within_s is not None:
            self._deadline = self._loop.call_later(within_s, self._expire)

    def _within_s(self) -> float | None:
        limits = self._port.limits
        match self._wait:
            case Wait.HEAD:
                return limits.head_s
            case Wait.BODY:
                return limits.body_s
            case Wait.REMAINDER:
                return limits.linger_s
            case Wait.REQUEST:
                # Not moved with every answer: checked when it is over.
                return max(0.0, self._used_at + limits.keep_alive_s - self._loop.time())
            case Wait.READER | Wait.GOODBYE:
                return limits.answer_s
            case Wait.FIRST_REQUEST:
                return limits.first_request_s
            case Wait.DECISION:
                return None

    def _expire(self) -> None:
        self._deadline = None
        match self._wait:
            case Wait.REQUEST if self._within_s():
                self.set_deadline()
            case Wait.HEAD:
                self._drop("head")
            case Wait.READER:
                self._drop("answer")
            case Wait.GOODBYE:
                self.transport.abort()
            case wait:
                self._protocol.expire(wait)

    def _drop(self, cause: str) -> None:
        if self._port.limiter.release(self._slot):
            CONNECTIONS_DROPPED.labels(cause).inc()
            self.transport.abort()

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _finish(self) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)


async def stable(answer: "Awaitable[Reply]") -> Reply:
    """Return the awaited answer, or that to a failure."""
    try:
        return await answer
    except Exception:  # noqa: BLE001  # the per-request boundary
        return failed_reply()


def failed_reply() -> Reply:
    """Answer inside an exception's handler."""
    TASK_FAILURES.labels("answering").inc()
    _log.exception("request failed")
    return error_reply(500)

"""HTTP/1.1 on one connection: requests are answered in the order of their arrival.

One way in: bytes → `RequestReader` → the endpoint → one write. A synchronous decision is answered before
`data_received` returns; only an awaited one has a task. While the first request waits, for its decision or its
peer, no further bytes are read: requests that are sent ahead wait in the system's buffers.

A connection waits for one thing at a time (`Wait`), and each has its deadline in `Limits`.
"""

import asyncio
import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, cast, final

import structlog

from kube.errors import one_line
from server.http.body import (
    BROKEN_OFF,
    LargeBodies,
    late,
    refusal_of_body,
    unreadable,
)
from server.http.replies import CONTINUE, Reply, ReplyEncoder, error_reply
from server.http.request_reader import MalformedRequestError, Phase, Request, RequestReader
from server.http.routes import Answer, Routes, ShownPage
from telemetry.metrics import CONNECTIONS_DROPPED, TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from server.http.connections import ConnectionLimiter, ConnectionSlot
    from server.http.limits import Limits
    from server.http.routes import Endpoint

_CLOSE: Final = b"Connection: close\r\n"
_KEEP: Final = b"Connection: keep-alive\r\n"

_log = structlog.get_logger()


class Wait(enum.Enum):
    """What a connection waits for."""

    FIRST_REQUEST = enum.auto()
    """Without a deadline: clients open connections in advance."""
    REQUEST = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    DECISION = enum.auto()
    """Without a deadline here."""
    READER = enum.auto()
    """The peer reads no answers."""
    REST = enum.auto()
    """Of a body that is discarded."""
    GOODBYE = enum.auto()
    """Answers that are on their way, and the peer's end of TLS."""


class OpenConnection(Protocol):
    """A connection as the port sees it."""

    def finish(self) -> "asyncio.Future[None] | None":
        """Close after the requests under way; None where there are none."""

    def close(self) -> None:
        """Close, with the answers so far delivered. Idempotent."""


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
class HttpProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: PortState, slot: "ConnectionSlot") -> None:
        self._port = port
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._requests: deque[Request] = deque()
        self._reader = RequestReader(self._requests, port.limits)
        self._deciding: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_writable = True
        self._is_paused = False
        self._wait = Wait.FIRST_REQUEST
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_head = 0
        # number of the head that the deadline is of
        self._answered_at = 0.0
        self._finished: asyncio.Future[None] | None = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen; the handshake, if any, is over."""
        self._transport = cast("asyncio.Transport", transport)
        self._slot.drop = self._transport.abort
        self._port.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """An awaited decision goes on: it may have written already."""
        self._is_over = True
        self._port.connections.discard(self)
        self._port.limiter.release(self._slot)
        self._port.large_bodies.remove(self)
        self._clear_deadline()
        if self._requests and self._requests[0].phase is Phase.READING:
            _endpoint_of(self._requests[0]).answer_unread(BROKEN_OFF, self._remote())
        self._requests.clear()
        self._finish()

    def data_received(self, data: bytes) -> None:
        """Read on; `data` may be empty: so uvloop reports the end of a handshake."""
        if not data or self._is_over or self._reader.is_over:
            return
        try:
            has_progress = self._reader.feed(data)
        except MalformedRequestError as error:
            has_progress = True
            self._break_off(error)
        if has_progress:
            self._port.limiter.mark_active(self._slot)
        self._advance()

    def pause_writing(self) -> None:
        self._is_writable = False
        self._watch()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._advance()

    # What the port calls.

    def finish(self) -> "asyncio.Future[None] | None":
        """Close after the requests under way; None where there are none."""
        if not self._requests:
            self.close()
            return None
        self._finished = self._loop.create_future()
        return self._finished

    def close(self) -> None:
        """Close, with the answers so far delivered. Idempotent."""
        if self._is_over:
            return
        self._is_over = True
        self._requests.clear()
        if self._deciding is not None:
            self._deciding.cancel()
        self._watch()
        self._transport.close()
        self._finish()

    # Requests, from the head to the answer.

    def _advance(self) -> None:
        """Answer the requests that can be answered."""
        while self._requests and self._is_writable:
            request = self._requests[0]
            try:
                answer = self._answer_to(request)
            except Exception:  # noqa: BLE001  # the per-request boundary
                answer = failed_reply()
            if isinstance(answer, Reply):
                self._send(request, answer)
            elif answer is not None:
                self._await(request, answer)
            if request.phase is not Phase.ANSWERED or not request.is_complete:
                break
            if request.is_last:
                self.close()
                break
            self._requests.popleft()
        self._watch()

    def _answer_to(self, request: Request) -> Answer | None:
        """Take the request's next step; None until there is an answer, and after it."""
        if request.phase is Phase.QUEUED:
            request.phase = Phase.READING
            answer = self._answer_to_head(request)
            if answer is not None:
                return answer
        if request.phase is not Phase.READING or not request.is_readable:
            return None
        endpoint = _endpoint_of(request)
        if request.fault is not None:
            return endpoint.answer_unread(request.fault, self._remote())
        return endpoint.answer(b"".join(request.parts))

    def _answer_to_head(self, request: Request) -> Answer | None:
        """Answer without the body, or ask for it."""
        if request.refusal is not None:
            return request.refusal
        route = self._port.routes.of(request.method, request.path)
        if isinstance(route, Reply):
            return route
        if isinstance(route, ShownPage):
            return route.show(request.headers)
        request.endpoint = route
        limits = self._port.limits
        headers = request.headers
        refusal = route.refusal_of(self._transport, headers) or refusal_of_body(
            headers, request.length, limits
        )
        if refusal is not None:
            return route.answer_unread(refusal, self._remote())
        expected = headers.get(b"expect")
        if expected is not None and not request.is_old:
            if expected.lower() != b"100-continue":
                return error_reply(417)
            if not request.is_readable:
                self._transport.write(CONTINUE)
        is_small = request.length is not None and request.length <= limits.large_body_bytes
        if not (route.knows_callers or is_small or request.is_readable):
            self._port.large_bodies.add(self, self._watch)
        return None

    def _await(self, request: Request, answer: "Awaitable[Reply]") -> None:
        request.phase = Phase.DECIDING
        work = self._send_awaited(request, answer)
        self._deciding = self._port.tasks.create_task(work, name="request")

    async def _send_awaited(self, request: Request, answer: "Awaitable[Reply]") -> None:
        try:
            reply = await answer
        except Exception:  # noqa: BLE001  # the per-request boundary
            reply = failed_reply()
        self._deciding = None
        # Dropped meanwhile, it may not have been told so yet.
        if not (self._is_over or self._transport.is_closing()):
            self._send(request, reply)
            self._advance()

    def _send(self, request: Request, reply: Reply) -> None:
        request.phase = Phase.ANSWERED
        request.parts.clear()
        request.is_last = request.is_last or self._port.is_draining
        self._port.large_bodies.remove(self)
        self._answered_at = self._loop.time()
        connection = _CLOSE if request.is_last else _KEEP if request.is_old else b""
        has_body = request.method != b"HEAD"
        self._transport.write(self._port.encoder.encode(reply, connection, has_body=has_body))

    def _break_off(self, error: MalformedRequestError) -> None:
        """Let the connection end with the answer to what is malformed."""
        self._reader.is_over = True
        request = self._requests[-1] if self._requests else None
        if request is None or request.is_complete:
            _log.warning("malformed HTTP request", error=one_line(str(error)))
            request = Request(b"", b"", {})
            request.refusal = error_reply(error.status)
            self._requests.append(request)
        request.fault = request.fault or unreadable(str(error))
        request.is_complete = request.is_last = True

    def _remote(self) -> str | None:
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else None

    def _finish(self) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    # Deadlines, and whether to read on.

    def _watch(self) -> None:
        """Set the deadline of what is waited for now; begin, or cease, to read."""
        wait = self._waits_for()
        is_held = (
            wait is Wait.DECISION
            or wait is Wait.READER
            or (wait is Wait.BODY and self._port.large_bodies.is_waiting(self))
        )
        if is_held != self._is_paused:
            self._is_paused = is_held
            (self._transport.pause_reading if is_held else self._transport.resume_reading)()
        head = 0 if wait is Wait.REQUEST else self._reader.heads
        if wait is not self._wait or head != self._deadline_head:
            self._wait, self._deadline_head = wait, head
            self._clear_deadline()
            within_s = self._within_s()
            if within_s is not None:
                self._deadline = self._loop.call_later(within_s, self._expire)

    def _waits_for(self) -> Wait:
        if self._is_over:
            return Wait.GOODBYE
        if not self._is_writable:
            return Wait.READER
        if self._requests:
            match self._requests[0].phase:
                case Phase.DECIDING:
                    return Wait.DECISION
                case Phase.ANSWERED:
                    return Wait.REST
                case _:
                    return Wait.BODY
        if self._reader.awaits_head:
            return Wait.HEAD
        return Wait.REQUEST if self._reader.heads else Wait.FIRST_REQUEST

    def _within_s(self) -> float | None:
        limits = self._port.limits
        match self._wait:
            case Wait.HEAD:
                return limits.head_s
            case Wait.BODY:
                return limits.body_s
            case Wait.REST:
                return limits.linger_s
            case Wait.REQUEST:
                # Not moved with every answer: checked when it is over.
                return max(0.0, self._answered_at + limits.keep_alive_s - self._loop.time())
            case Wait.READER | Wait.GOODBYE:
                return limits.answer_s
            case Wait.FIRST_REQUEST | Wait.DECISION:
                return None

    def _expire(self) -> None:
        self._deadline = None
        match self._wait:
            case Wait.BODY:
                self._requests[0].fault = late(self._port.limits)
                self._advance()
            case Wait.REQUEST if self._within_s():
                self._wait = Wait.FIRST_REQUEST
                self._watch()
            case Wait.REQUEST | Wait.REST:
                self.close()
            case Wait.HEAD:
                self._drop("head")
            case Wait.READER:
                self._drop("answer")
            case _:
                self._transport.abort()

    def _drop(self, cause: str) -> None:
        if self._port.limiter.release(self._slot):
            CONNECTIONS_DROPPED.labels(cause).inc()
            self._transport.abort()

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _endpoint_of(request: Request) -> "Endpoint":
    assert request.endpoint is not None, "its body is read for one"
    return request.endpoint


def failed_reply() -> Reply:
    """Answer inside an exception's handler."""
    TASK_FAILURES.labels("answering").inc()
    _log.exception("request failed")
    return error_reply(500)

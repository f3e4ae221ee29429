"""HTTP/1.1 on one connection: requests are answered in the order of their arrival.

One way in: bytes → `RequestReader` → the endpoint → one write. A synchronous decision is answered before
`data_received` returns; only an awaited one has a task. While the first request waits, for its decision or its
peer, no further bytes are read: requests that are sent ahead wait in the system's buffers.

A connection waits for one thing at a time (`http_edge.peer_connection.Wait`).
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast, final

import structlog

from http_edge.body import BROKEN_OFF, late, unreadable
from http_edge.peer_connection import PeerConnection, PortState, Wait, failed_reply, stable
from http_edge.replies import CONTINUE, Reply, error_reply
from http_edge.request_reader import MalformedRequestError, Phase, Request, RequestReader
from http_edge.routes import Answer, GeneratedPage
from kube.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from http_edge.connections import ConnectionSlot
    from http_edge.routes import Endpoint

_CLOSE: Final = b"Connection: close\r\n"
_KEEP: Final = b"Connection: keep-alive\r\n"

_log = structlog.get_logger()


@final
class HttpProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: PortState, slot: "ConnectionSlot") -> None:
        self._port = port
        self._connection = PeerConnection(port, slot)
        self._requests: deque[Request] = deque()
        self._reader = RequestReader(self._requests, port.limits)
        self._deciding: asyncio.Task[None] | None = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen; the handshake, if any, is over."""
        self._connection.open(self, cast("asyncio.Transport", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """An awaited decision goes on: it may have written already."""
        self._connection.lose()
        self._port.large_bodies.remove(self)
        if self._requests and self._requests[0].phase is Phase.READING:
            _endpoint_of(self._requests[0]).answer_unread(BROKEN_OFF, self._connection.remote())
        self._requests.clear()

    def data_received(self, data: bytes) -> None:
        """Read on; `data` may be empty: so uvloop reports the end of a handshake."""
        if not data or self._connection.is_over or self._reader.is_over:
            return
        try:
            has_progress = self._reader.feed(data)
        except MalformedRequestError as error:
            has_progress = True
            self._abort(error)
        if has_progress:
            self._connection.mark_active()
        self._advance()

    def pause_writing(self) -> None:
        self._connection.is_writable = False
        self._watch()

    def resume_writing(self) -> None:
        self._connection.is_writable = True
        self._advance()

    # What the port and the deadline call.

    def finish(self) -> "asyncio.Future[None] | None":
        """Close after the requests under way; None where there are none."""
        if not self._requests:
            self.close()
            return None
        return self._connection.finished()

    def close(self) -> None:
        """Close, with the answers so far delivered. Idempotent."""
        if self._connection.is_over:
            return
        self._requests.clear()
        if self._deciding is not None:
            self._deciding.cancel()
        self._connection.close()

    def expire(self, wait: Wait) -> None:
        """Refuse a body that is late; otherwise close."""
        if wait is Wait.BODY:
            self._requests[0].fault = late(self._port.limits)
            self._advance()
        else:
            self.close()

    # Requests, from the head to the answer.

    def _advance(self) -> None:
        """Answer the requests that can be answered."""
        while self._requests and self._connection.is_writable:
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
            return endpoint.answer_unread(request.fault, self._connection.remote())
        return endpoint.answer(bytes(request.body))

    def _answer_to_head(self, request: Request) -> Answer | None:
        """Answer without the body, or ask for it."""
        if request.refusal is not None:
            return request.refusal
        route = self._port.routes.of(request.method, request.path)
        if isinstance(route, Reply):
            return route
        if isinstance(route, GeneratedPage):
            return route.render(self._connection.transport, request.headers)
        request.endpoint = route
        headers = request.headers
        refusal = self._connection.refusal_of(route, headers, request.length)
        if refusal is not None:
            return refusal
        expected = headers.get(b"expect")
        if expected is not None and not request.is_old:
            if expected.lower() != b"100-continue":
                return error_reply(417)
            if not request.is_readable:
                self._connection.transport.write(CONTINUE)
        large = self._port.limits.large_body_bytes
        is_small = request.length is not None and request.length <= large
        if not (route.knows_callers or is_small or request.is_readable):
            self._port.large_bodies.add(self, self._watch)
        return None

    def _await(self, request: Request, answer: "Awaitable[Reply]") -> None:
        request.phase = Phase.DECIDING
        work = self._send_awaited(request, answer)
        self._deciding = self._port.tasks.create_task(work, name="request")

    async def _send_awaited(self, request: Request, answer: "Awaitable[Reply]") -> None:
        reply = await stable(answer)
        self._deciding = None
        if not self._connection.is_gone():
            self._send(request, reply)
            self._advance()

    def _send(self, request: Request, reply: Reply) -> None:
        request.phase = Phase.ANSWERED
        request.body.clear()
        request.is_last = request.is_last or self._port.is_draining
        self._port.large_bodies.remove(self)
        self._connection.note_use()
        connection = _CLOSE if request.is_last else _KEEP if request.is_old else b""
        has_body = request.method != b"HEAD"
        reply_bytes = self._port.encoder.encode(reply, connection, has_body=has_body)
        self._connection.transport.write(reply_bytes)

    def _abort(self, error: MalformedRequestError) -> None:
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

    # What is waited for.

    def _watch(self) -> None:
        wait = self._waits_for()
        is_held = (
            wait is Wait.DECISION
            or wait is Wait.READER
            or (wait is Wait.BODY and self._port.large_bodies.is_waiting(self))
        )
        head = 0 if wait is Wait.REQUEST else self._reader.heads
        self._connection.watch(wait, head, is_held=is_held)

    def _waits_for(self) -> Wait:
        if not self._connection.is_writable:
            return Wait.READER
        if self._requests:
            match self._requests[0].phase:
                case Phase.DECIDING:
                    return Wait.DECISION
                case Phase.ANSWERED:
                    return Wait.REMAINDER
                case _:
                    return Wait.BODY
        if self._reader.awaits_head:
            return Wait.HEAD
        return Wait.REQUEST if self._reader.heads else Wait.FIRST_REQUEST


def _endpoint_of(request: Request) -> "Endpoint":
    assert request.endpoint is not None, "its body is read for one"
    return request.endpoint

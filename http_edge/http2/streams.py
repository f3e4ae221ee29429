"""Streams of an HTTP/2 connection, and the bodies on them: how much of them may be on its way.

A body is acknowledged as it is read, so that the peer's windows are open. One of a caller without
authentication is so only in its turn among all large bodies, except for the small bodies of a connection,
which together are no larger than one small body may be: by streams a connection takes no more memory than by
HTTP/1.1, but for one window.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived

from http_edge.body import BROKEN_OFF, too_large
from http_edge.replies import error_reply
from http_edge.routes import Endpoint, GeneratedPage, Headers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from http_edge.body import Unread
    from http_edge.limits import Limits
    from http_edge.peer_connection import PeerConnection, PortState
    from http_edge.replies import Reply, ReplyEncoder

LEAST_PART: Final = 1024
"""Bytes of an answer in one frame, but for its end. A peer whose window stays smaller reads no answers."""
_FIRST_WINDOW: Final = 2**16 - 1
"""Bytes of the first window of a connection, by the protocol; no smaller one can be had."""


@final
class Stream(msgspec.Struct, eq=False):
    """A request from its head to its answer."""

    number: int
    method: bytes
    headers: Headers
    is_complete: bool
    """Whether nothing of it is to come."""
    endpoint: "Endpoint | None" = None
    """What its body is read for."""
    page: GeneratedPage | None = None
    reply: "Reply | None" = None
    """The answer, where the head or a fault of the body decides it."""
    is_abandoned: bool = False
    """Whether nobody waits for its answer."""
    deadline: "asyncio.TimerHandle | None" = None
    """Deadline of its body."""

    body: bytearray = msgspec.field(default_factory=bytearray)
    """What came of it, as one piece."""
    unacknowledged: int = 0
    """Bytes by which its window is to be opened again."""
    held: int = 0
    """Bytes that wait for the body's turn; the connection's window is smaller by them too."""
    reserved: int = 0
    """Its share of what the small bodies of the connection may have together."""

    @property
    def path(self) -> bytes:
        return self.headers.get(b":path", b"").partition(b"?")[0]

    @property
    def length(self) -> int | None:
        """Length of the body, as declared."""
        length = self.headers.get(b"content-length", b"")
        return int(length) if length.isdigit() else None

    @property
    def is_read(self) -> bool:
        """Return whether its body is read, or will be."""
        return self.endpoint is not None and self.reply is None and not self.is_complete

    def clear_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


def stream_of(event: RequestReceived) -> Stream:
    """Return a new request; of two headers the first counts, for all readers alike."""
    assert event.stream_id is not None, "h2 sets it"
    headers: dict[bytes, bytes] = {}
    for name, value in event.headers or ():
        headers.setdefault(name, value)
    is_complete = event.stream_ended is not None
    return Stream(event.stream_id, headers.get(b":method", b""), headers, is_complete)


def window_of(limits: "Limits") -> int:
    """Return how many bytes may be on their way on a stream, and on a connection."""
    return max(_FIRST_WINDOW, 2 * limits.large_body_bytes)


@final
class InboundBodies:
    """The bodies of one connection; a request whose body is there, or will not be, is appended to `readable`."""

    def __init__(
        self,
        codec: H2Connection,
        port: "PortState",
        connection: "PeerConnection",
        *,
        readable: deque[Stream],
    ) -> None:
        self._codec = codec
        self._large = port.large_bodies
        self._limits = limits = port.limits
        self._connection = connection
        self._readable = readable
        self._worth = window_of(limits) // 2
        # bytes by which a window is opened at a time
        self._unacknowledged = 0
        self._reserved = 0

    def open_window(self) -> None:
        """Make the connection's window as large as a stream's."""
        more = window_of(self._limits) - _FIRST_WINDOW
        if more:
            self._codec.increment_flow_control_window(more)

    def ask_for(self, stream: Stream, flush: "Callable[[], None]") -> None:
        """Let a body come, one of a caller without authentication in its turn."""
        assert stream.endpoint is not None, "its body is read for one"
        expected = stream.headers.get(b"expect")
        if expected is not None:
            if expected.lower() != b"100-continue":
                stream.reply = error_reply(417)
                return
            self._codec.send_headers(stream.number, [(b":status", b"100")])
        if not stream.endpoint.knows_callers:
            self._take_turns(stream, flush)

    def _take_turns(self, stream: Stream, flush: "Callable[[], None]") -> None:
        """Let a body wait for others, unless it is small."""
        length = stream.length
        if length is not None and self._reserved + length <= self._limits.large_body_bytes:
            stream.reserved = length
            self._reserved += length
            return

        def on_turn() -> None:
            self._acknowledge(stream, stream.held)
            stream.held = 0
            flush()

        self._large.add(stream, on_turn)

    def read(self, stream: Stream | None, event: DataReceived) -> int:
        """Take a part of a body; return the bytes by which it brought a request on."""
        part, flow = event.data or b"", event.flow_controlled_length or 0
        if stream is None or not stream.is_read:
            self.discard(flow)
            return 0
        if len(stream.body) + len(part) > self._limits.body_bytes:
            self.discard(flow)
            self.refuse(stream, too_large(self._limits))
        else:
            stream.body += part
            if self._large.is_waiting(stream):
                stream.held += flow
            else:
                self._acknowledge(stream, flow)
        return len(part)

    def complete(self, stream: Stream | None) -> bool:
        """Note the end of a request, unless it is answered or had no body; return whether its body is read."""
        if stream is None or stream.is_complete:
            return False
        is_read = stream.is_read
        if is_read:
            self._readable.append(stream)
        stream.is_complete = True
        stream.clear_deadline()
        return is_read

    def refuse(self, stream: Stream, unread: "Unread") -> None:
        """Let a body that is read be answered before its end."""
        stream.reply = self._unread(stream, unread)
        self.release(stream)
        self._readable.append(stream)

    def abandon(self, stream: Stream) -> None:
        """Forget the body of a request that nobody waits for."""
        if stream.is_read:
            self._unread(stream, BROKEN_OFF)
        self.release(stream)

    def _unread(self, stream: Stream, unread: "Unread") -> "Reply":
        assert stream.endpoint is not None, "its body is read for one"
        return stream.endpoint.answer_unread(unread, self._connection.remote())

    def discard(self, flow: int) -> None:
        """Count what nobody reads, or has read: other streams go on."""
        self._unacknowledged += flow

    def acknowledge(self) -> None:
        """Open the connection's window again, in steps that are worth a frame."""
        if self._unacknowledged >= self._worth:
            self._codec.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0

    def release(self, stream: Stream) -> None:
        """Forget the body, and let the next one have its turn. Idempotent."""
        stream.clear_deadline()
        stream.body = bytearray()
        self._reserved -= stream.reserved
        stream.reserved = 0
        self.discard(stream.held)
        stream.held = 0
        self._large.remove(stream)

    def _acknowledge(self, stream: Stream, flow: int) -> None:
        self.discard(flow)
        stream.unacknowledged += flow
        if stream.unacknowledged >= self._worth and stream.is_read:
            self._codec.increment_flow_control_window(stream.unacknowledged, stream.number)
            stream.unacknowledged = 0


@final
class OutboundBodies:
    """The answers of one connection, sent one after the other; true while there is one."""

    def __init__(self, codec: H2Connection, encoder: "ReplyEncoder") -> None:
        self._codec = codec
        self._encoder = encoder
        self._remaining: deque[tuple[Stream, memoryview]] = deque()

    def __bool__(self) -> bool:
        return bool(self._remaining)

    def begin(self, stream: Stream, reply: "Reply") -> bool:
        """Send the head of an answer; return whether a body follows."""
        has_body = stream.method != b"HEAD" and bool(reply.body)
        fields = self._encoder.fields(reply, has_body=has_body)
        self._codec.send_headers(stream.number, fields, end_stream=not has_body)
        if has_body:
            self._remaining.append((stream, memoryview(reply.body)))
        return has_body

    def remove(self, stream: Stream) -> None:
        """Forget an answer that nobody waits for. Idempotent."""
        self._remaining = deque(
            remaining for remaining in self._remaining if remaining[0] is not stream
        )

    def send(self) -> "Iterator[tuple[Stream, int, bool]]":
        """Send what the peer's windows let through, in parts that are worth a frame.

        Yield for each part its stream, its size, and whether it is the last.
        """
        codec = self._codec
        while self._remaining:
            stream, remaining = self._remaining[0]
            window = codec.local_flow_control_window(stream.number)
            size = min(len(remaining), window, codec.max_outbound_frame_size)
            if size < min(len(remaining), LEAST_PART):
                return
            is_end = size == len(remaining)
            codec.send_data(stream.number, remaining[:size].tobytes(), end_stream=is_end)
            if is_end:
                self._remaining.popleft()
            else:
                self._remaining[0] = (stream, remaining[size:])
            yield stream, size, is_end

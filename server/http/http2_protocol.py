"""HTTP/2 on one connection: each stream is a request, answered when it can be, whatever other streams wait for.

kube-scheduler speaks it, and needs one connection for all its calls (design 0003). `server.http.frames` bounds
what comes, h2 checks and decodes it, and requests meet the same routes, limits and authentication as by HTTP/1.1.

A body has a deadline of its own; the connection waits for one more thing at a time (`Wait`). While an answer
waits for its reader, or a page is awaited, no other request is decided.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast, final

import structlog
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from kube.errors import one_line
from server.http.body import BROKEN_OFF, late, refusal_of_body, too_large
from server.http.frames import FrameLimitError, FrameReader, goaway
from server.http.protocol import PortState, Wait, failed_reply
from server.http.replies import Reply, error_reply
from server.http.routes import ShownPage
from server.http.streams import InboundBodies, Stream, window_of
from telemetry.metrics import CONNECTIONS_DROPPED, TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from server.http.body import Unread
    from server.http.connections import ConnectionSlot
    from server.http.limits import Limits
    from server.http.routes import Answer, Headers

_CONFIG: Final = H2Configuration(
    client_side=False,
    header_encoding=None,
    # No field is passed on, so what nobody looks at need not be well-formed; it costs a third of a request.
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    # Answers are the server's own.
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
_TABLE_BYTES: Final = 512
"""Of fields that answers repeat, though peers hold more: each field is looked for in all of them."""

_log = structlog.get_logger()


@final
class Http2Protocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: PortState, slot: "ConnectionSlot") -> None:
        self._port = port
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._frames = FrameReader(port.limits)
        self._codec = _codec(port.limits, self._frames.frame_bytes)
        self._bodies = InboundBodies(self._codec, port.large_bodies, port.limits)
        self._streams: dict[int, Stream] = {}
        # all that are not answered; of those that are abandoned, all that are decided
        self._queue: deque[Stream] = deque()
        self._deciding: dict[Stream, asyncio.Task[None]] = {}
        self._awaited_page: Stream | None = None
        self._unsent: deque[tuple[Stream, memoryview]] = deque()
        self._given_up = 0
        # requests that the peer reset, beyond those that were answered
        self._is_over = self._is_last = False
        self._is_writable = True
        self._is_paused = False
        self._wait = Wait.FIRST_REQUEST
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_frame = 0
        # number of the frame that the deadline is of
        self._answered_at = 0.0
        self._finished: asyncio.Future[None] | None = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what may be sent; the handshake is over."""
        self._transport = cast("asyncio.Transport", transport)
        self._slot.drop = self._transport.abort
        self._port.connections.add(self)
        self._codec.initiate_connection()
        self._bodies.open_window()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Awaited decisions go on: they may have written already."""
        self._is_over = True
        self._port.connections.discard(self)
        self._port.limiter.release(self._slot)
        self._clear_deadline()
        self._abandon_all()
        self._finish()

    def data_received(self, data: bytes) -> None:
        """Read on; `data` may be empty: so uvloop reports the end of a handshake."""
        if self._is_over:
            return
        try:
            self._feed(data)
        except FrameLimitError as error:
            self._codec.close_connection(error.code)
            self._break_off(error)
        except ProtocolError as error:
            self._break_off(error)
        except Exception as error:  # noqa: BLE001  # a defect must not end other connections
            TASK_FAILURES.labels("answering").inc()
            _log.exception("HTTP/2 connection failed")
            self._break_off(error)
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
        if not self._streams:
            self.close()
            return None
        self._send_away()
        self._finished = self._loop.create_future()
        return self._finished

    def close(self) -> None:
        """Close, with the answers so far delivered. Idempotent."""
        if self._is_over:
            return
        self._send_away()
        for task in self._deciding.values():
            task.cancel()
        self._hang_up()

    # Events.

    def _feed(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if self._is_over:
                return
            for event in self._codec.receive_data(frame):
                self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._open(event)
            case DataReceived():
                self._read(event)
            case StreamEnded():
                self._complete(event.stream_id)
            case StreamReset():
                stream = self._streams.get(event.stream_id)
                if stream is not None:
                    self._give_up(stream)
            case WindowUpdated():
                self._send_bodies()
            case RemoteSettingsChanged():
                encoder = self._codec.encoder
                encoder.header_table_size = min(encoder.header_table_size, _TABLE_BYTES)
                self._send_bodies()
            case ConnectionTerminated():
                # h2 sends nothing after it; Go's client closes its connections without one.
                self._hang_up()
            case _:
                pass

    def _open(self, event: RequestReceived) -> None:
        number = event.stream_id
        assert number is not None, "h2 sets it"
        limits = self._port.limits
        if self._is_last or len(self._streams) >= limits.pipelined:
            # It has been told so, or its abandoned requests are decided still.
            self._codec.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        self._port.limiter.mark_active(self._slot)
        fields = event.headers or []
        headers: dict[bytes, bytes] = {}
        for name, value in fields:
            # Of two the first counts, for all readers alike.
            headers.setdefault(name, value)
        stream = Stream(
            number, headers.get(b":method", b""), headers, event.stream_ended is not None
        )
        self._streams[number] = stream
        if len(fields) > limits.head_fields:
            stream.reply = error_reply(431)
        else:
            try:
                self._begin(stream)
            except Exception:  # noqa: BLE001  # the per-request boundary
                stream.reply = failed_reply()
        if stream.is_read:
            stream.deadline = self._loop.call_later(limits.body_s, self._expire_body, stream)
        else:
            self._queue.append(stream)

    def _begin(self, stream: Stream) -> None:
        """Find what answers it, or its body is read for."""
        headers = stream.headers
        path = headers.get(b":path", b"").partition(b"?")[0]
        route = self._port.routes.of(stream.method, path)
        if isinstance(route, Reply):
            stream.reply = route
            return
        if isinstance(route, ShownPage):
            stream.page = route
            return
        length = _length_of(headers)
        refusal = route.refusal_of(self._transport, headers) or refusal_of_body(
            headers, length, self._port.limits
        )
        if refusal is not None:
            stream.reply = route.answer_unread(refusal, self._remote())
            return
        stream.endpoint = route
        if stream.is_complete:
            return
        expected = headers.get(b"expect")
        if expected is not None:
            if expected.lower() != b"100-continue":
                stream.reply = error_reply(417)
                return
            self._codec.send_headers(stream.number, [(b":status", b"100")])
        if not route.knows_callers:
            self._bodies.take_turns(stream, length, self._flush)

    def _read(self, event: DataReceived) -> None:
        assert event.stream_id is not None, "h2 sets it"
        stream = self._streams.get(event.stream_id)
        part, flow = event.data or b"", event.flow_controlled_length or 0
        if stream is None or not stream.is_read:
            self._bodies.discard(flow)
            return
        if part:
            self._frames.note_progress()
            self._port.limiter.mark_active(self._slot)
        if not self._bodies.read(stream, part, flow):
            self._refuse_body(stream, too_large(self._port.limits))

    def _complete(self, number: int | None) -> None:
        stream = self._streams.get(number or 0)
        if stream is None or stream.is_complete:
            return
        was_read = stream.is_read
        stream.is_complete = True
        stream.clear_deadline()
        if was_read:
            self._queue.append(stream)

    def _expire_body(self, stream: Stream) -> None:
        stream.deadline = None
        self._refuse_body(stream, late(self._port.limits))
        self._advance()

    def _refuse_body(self, stream: Stream, unread: "Unread") -> None:
        assert stream.endpoint is not None, "its body is read for one"
        stream.reply = stream.endpoint.answer_unread(unread, self._remote())
        self._bodies.release(stream)
        self._queue.append(stream)

    def _give_up(self, stream: Stream) -> None:
        """Forget a request that the peer reset, unless it does nothing else."""
        self._given_up += 1
        if self._given_up > self._port.limits.pipelined:
            text = "more requests are given up than are answered"
            raise FrameLimitError(ErrorCodes.ENHANCE_YOUR_CALM, text)
        self._abandon(stream)

    def _abandon(self, stream: Stream) -> None:
        """Forget a request; one that is decided goes on, and counts as one until it is."""
        stream.is_abandoned = True
        if stream.is_read and stream.endpoint is not None:
            stream.endpoint.answer_unread(BROKEN_OFF, self._remote())
        self._bodies.release(stream)
        if stream in self._deciding:
            return
        del self._streams[stream.number]
        if stream in self._queue:
            self._queue.remove(stream)
        self._unsent = deque(one for one in self._unsent if one[0] is not stream)

    def _abandon_all(self) -> None:
        for stream in tuple(self._streams.values()):
            if not stream.is_abandoned:
                self._abandon(stream)

    # From the request to the answer.

    def _advance(self) -> None:
        """Answer the requests that can be answered."""
        while self._may_answer():
            stream = self._queue.popleft()
            try:
                answer = self._answer_to(stream)
            except Exception:  # noqa: BLE001  # the per-request boundary
                answer = failed_reply()
            if isinstance(answer, Reply):
                self._send(stream, answer)
            else:
                self._await(stream, answer)
        self._flush()
        if self._is_last and not self._streams:
            self._hang_up()
        self._watch()

    def _may_answer(self) -> bool:
        is_read = self._is_writable and not self._unsent and not self._is_over
        return is_read and bool(self._queue) and self._awaited_page is None

    def _answer_to(self, stream: Stream) -> "Answer":
        if stream.reply is not None:
            return stream.reply
        if stream.page is not None:
            return stream.page.show(stream.headers)
        assert stream.endpoint is not None, "one of the three is there"
        return stream.endpoint.answer(b"".join(stream.parts))

    def _await(self, stream: Stream, answer: "Awaitable[Reply]") -> None:
        if stream.page is not None:
            self._awaited_page = stream
        work = self._send_awaited(stream, answer)
        self._deciding[stream] = self._port.tasks.create_task(work, name="request")

    async def _send_awaited(self, stream: Stream, answer: "Awaitable[Reply]") -> None:
        try:
            reply = await answer
        except Exception:  # noqa: BLE001  # the per-request boundary
            reply = failed_reply()
        del self._deciding[stream]
        if self._awaited_page is stream:
            self._awaited_page = None
        # Dropped meanwhile, it may not have been told so yet.
        if self._is_over or self._transport.is_closing():
            return
        if stream.is_abandoned:
            del self._streams[stream.number]
        else:
            self._send(stream, reply)
        self._advance()

    def _send(self, stream: Stream, reply: Reply) -> None:
        self._bodies.release(stream)
        self._answered_at = self._loop.time()
        self._given_up = max(0, self._given_up - 1)
        has_body = stream.method != b"HEAD" and bool(reply.body)
        fields = self._port.encoder.fields(reply, has_body=has_body)
        self._codec.send_headers(stream.number, fields, end_stream=not has_body)
        if has_body:
            self._unsent.append((stream, memoryview(reply.body)))
            self._send_bodies()
        else:
            self._end(stream)

    def _send_bodies(self) -> None:
        """Send as much of the answers as the peer's windows let through."""
        codec = self._codec
        while self._unsent:
            stream, rest = self._unsent[0]
            window = codec.local_flow_control_window(stream.number)
            size = min(len(rest), window, codec.max_outbound_frame_size)
            if size <= 0:
                return
            is_end = size == len(rest)
            codec.send_data(stream.number, rest[:size].tobytes(), end_stream=is_end)
            self._frames.note_progress()
            if is_end:
                self._unsent.popleft()
                self._end(stream)
            else:
                self._unsent[0] = (stream, rest[size:])

    def _end(self, stream: Stream) -> None:
        """Forget a request that is answered."""
        del self._streams[stream.number]
        self._frames.note_progress()
        if not stream.is_complete:
            # The rest of its body need not be sent.
            self._codec.reset_stream(stream.number, ErrorCodes.NO_ERROR)
        if self._port.is_draining:
            self._send_away()

    # The end of the connection.

    def _send_away(self) -> None:
        """Have the peer make its further requests elsewhere; those that it has sent so far are answered."""
        if not self._is_last:
            self._is_last = True
            self._flush()
            self._transport.write(goaway(self._codec.highest_inbound_stream_id))

    def _break_off(self, error: Exception) -> None:
        """Hang up on a peer whose bytes have no further meaning."""
        _log.warning("malformed HTTP request", error=one_line(str(error)))
        self._hang_up()

    def _hang_up(self) -> None:
        """Close; awaited decisions go on. Idempotent."""
        if self._is_over:
            return
        self._write()
        self._is_over = self._is_last = True
        self._abandon_all()
        self._watch()
        self._transport.close()
        self._finish()

    def _flush(self) -> None:
        if not self._is_over:
            self._bodies.acknowledge()
            self._write()

    def _write(self) -> None:
        sent = self._codec.data_to_send()
        if sent:
            self._transport.write(sent)

    def _finish(self) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    def _remote(self) -> str | None:
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else None

    # Deadlines.

    def _watch(self) -> None:
        """Set the deadline of what is waited for now; begin, or cease, to read."""
        is_held = not (self._is_writable or self._is_over)
        if is_held != self._is_paused:
            self._is_paused = is_held
            (self._transport.pause_reading if is_held else self._transport.resume_reading)()
        wait = self._waits_for()
        frame = self._frames.count if wait is Wait.HEAD else 0
        if wait is self._wait and frame == self._deadline_frame:
            return
        self._wait, self._deadline_frame = wait, frame
        self._clear_deadline()
        within_s = self._within_s()
        if within_s is not None:
            self._deadline = self._loop.call_later(within_s, self._expire)

    def _waits_for(self) -> Wait:
        if self._is_over:
            return Wait.GOODBYE
        if self._unsent or not self._is_writable:
            return Wait.READER
        if self._frames.awaits_rest:
            return Wait.HEAD
        return Wait.REQUEST if self._codec.highest_inbound_stream_id else Wait.FIRST_REQUEST

    def _within_s(self) -> float | None:
        limits = self._port.limits
        match self._wait:
            case Wait.HEAD:
                return limits.head_s
            case Wait.REQUEST:
                # Not moved with every request: checked when it is over.
                now = self._loop.time()
                idle_since = now if self._streams else self._answered_at
                return max(0.0, idle_since + limits.keep_alive_s - now)
            case Wait.READER | Wait.GOODBYE:
                return limits.answer_s
            case _:
                return None

    def _expire(self) -> None:
        self._deadline = None
        match self._wait:
            case Wait.REQUEST if self._within_s():
                self._wait = Wait.FIRST_REQUEST
                self._watch()
            case Wait.REQUEST:
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


def _codec(limits: "Limits", frame_bytes: int) -> H2Connection:
    codec = H2Connection(_CONFIG)
    codec.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.pipelined,
            SettingCodes.INITIAL_WINDOW_SIZE: window_of(limits),
            SettingCodes.MAX_FRAME_SIZE: frame_bytes,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.head_bytes,
        },
    )
    # In force before the peer has acknowledged them.
    codec.max_inbound_frame_size = frame_bytes
    codec.decoder.max_header_list_size = limits.head_bytes
    codec.encoder.header_table_size = _TABLE_BYTES
    return codec


def _length_of(headers: "Headers") -> int | None:
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else None

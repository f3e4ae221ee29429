"""HTTP/2 on one connection: each stream is a request, answered when it can be, whatever other streams wait for.

kube-scheduler speaks it, and needs one connection for all its calls (design 0003). `http_edge.http2.frames` bounds
what comes, h2 checks and decodes it, and requests meet the same routes, limits and authentication as by HTTP/1.1.

A body has a deadline of its own; the connection waits for one more thing at a time (`Wait`). While an answer
waits for its reader, or a page is awaited, no other request is decided.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast, final

import structlog
from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from http_edge.body import late
from http_edge.http2.frames import FrameLimitError, FrameReader, goaway
from http_edge.http2.http2_codec import bound_table, codec_of
from http_edge.http2.streams import InboundBodies, OutboundBodies, Stream, stream_of
from http_edge.peer_connection import PeerConnection, PortState, Wait, failed_reply, stable
from http_edge.replies import Reply, error_reply
from http_edge.routes import GeneratedPage
from kube.errors import one_line
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from http_edge.connections import ConnectionSlot
    from http_edge.routes import Answer

_log = structlog.get_logger()


@final
class Http2Protocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: PortState, slot: "ConnectionSlot") -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._connection = PeerConnection(port, slot)
        self._frames = FrameReader(port.limits)
        self._codec = codec_of(port.limits, self._frames.frame_bytes)
        self._streams: dict[int, Stream] = {}
        # all that are not answered; of those that are abandoned, all that are decided
        self._queue: deque[Stream] = deque()
        self._bodies = InboundBodies(self._codec, port, self._connection, readable=self._queue)
        self._deciding: dict[Stream, asyncio.Task[None]] = {}
        self._awaited_page: Stream | None = None
        self._unsent = OutboundBodies(self._codec, port.encoder)
        self._scheduled_read: asyncio.Handle | None = None
        # for frames that have arrived
        self._excess_resets = 0
        # requests that the peer reset, beyond those that were answered
        self._refuses_streams = False
        # whether a GOAWAY was sent, or the connection is closed

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what may be sent; the handshake is over."""
        self._connection.open(self, cast("asyncio.Transport", transport))
        self._codec.initiate_connection()
        self._bodies.open_window()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Awaited decisions go on: they may have written already."""
        self._connection.lose()
        self._abandon_all()

    def data_received(self, data: bytes) -> None:
        """Read on; `data` may be empty: so uvloop reports the end of a handshake."""
        if self._connection.is_over:
            return
        self._frames.feed(data)
        if self._scheduled_read is None:
            self._read_batch()

    def _read_batch(self) -> None:
        """Read one batch of frames; the next one waits until other connections had theirs."""
        self._scheduled_read = None
        if self._connection.is_over:
            return
        try:
            self._read_frames()
        except FrameLimitError as error:
            self._codec.close_connection(error.code)
            self._abort(error)
        except ProtocolError as error:
            self._abort(error)
        except Exception as error:  # noqa: BLE001  # a defect must not end other connections
            TASK_FAILURES.labels("answering").inc()
            _log.exception("HTTP/2 connection failed")
            self._abort(error)
        self._advance()
        self._schedule_read()

    def _schedule_read(self) -> None:
        """Schedule the next batch, if frames wait; none is read for a peer that reads no answers."""
        connection = self._connection
        is_due = self._frames.is_behind and connection.is_writable and not connection.is_over
        if is_due and self._scheduled_read is None:
            self._scheduled_read = self._loop.call_soon(self._read_batch)

    def pause_writing(self) -> None:
        self._connection.is_writable = False
        self._watch()

    def resume_writing(self) -> None:
        self._connection.is_writable = True
        self._advance()
        self._schedule_read()

    # What the port and the deadline call.

    def finish(self) -> "asyncio.Future[None] | None":
        """Close after the requests under way; None where there are none."""
        if not self._streams:
            self.close()
            return None
        self._send_goaway()
        return self._connection.finished()

    def close(self) -> None:
        """Close, with the answers so far delivered. Idempotent."""
        if self._connection.is_over:
            return
        self._send_goaway()
        for task in self._deciding.values():
            task.cancel()
        self._close_connection()

    def expire(self, wait: Wait) -> None:
        """Close, unless requests wait for their decisions or bodies."""
        if not self._streams:
            self.close()
            return
        self._connection.note_use()
        self._connection.set_deadline()

    # Events.

    def _read_frames(self) -> None:
        for frame in self._frames.frames():
            if self._connection.is_over:
                return
            for event in self._codec.receive_data(frame):
                self._take(event)

    def _take(self, event: events.Event) -> None:
        match event:
            case events.RequestReceived():
                self._open(event)
            case events.DataReceived():
                self._read(event)
            case events.StreamEnded():
                if self._bodies.complete(self._streams.get(event.stream_id)):
                    self._frames.note_progress()
            case events.StreamReset():
                self._reset(self._streams.get(event.stream_id))
            case events.WindowUpdated():
                self._send_bodies()
            case events.RemoteSettingsChanged():
                bound_table(self._codec)
                self._send_bodies()
            case events.ConnectionTerminated():
                # h2 sends nothing after it; Go's client closes its connections without one.
                self._close_connection()
            case _:
                pass

    def _open(self, event: events.RequestReceived) -> None:
        limits = self._port.limits
        stream = stream_of(event)
        if self._refuses_streams or len(self._streams) >= limits.pipelined:
            # A GOAWAY was sent, or abandoned requests are still decided.
            self._codec.reset_stream(stream.number, ErrorCodes.REFUSED_STREAM)
            return
        self._connection.mark_active()
        self._connection.note_use()
        self._streams[stream.number] = stream
        if len(event.headers or ()) > limits.head_fields:
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
        """Find the route or the refusal, or begin to read the body."""
        route = self._port.routes.of(stream.method, stream.path)
        if isinstance(route, Reply):
            stream.reply = route
        elif isinstance(route, GeneratedPage):
            stream.page = route
        elif refusal := self._connection.refusal_of(route, stream.headers, stream.length):
            stream.reply = refusal
        else:
            stream.endpoint = route
            if not stream.is_complete:
                self._bodies.ask_for(stream, self._flush)

    def _read(self, event: events.DataReceived) -> None:
        size = self._bodies.read(self._streams.get(event.stream_id or 0), event)
        if size:
            self._frames.note_bytes(size)
            self._connection.mark_active()

    def _expire_body(self, stream: Stream) -> None:
        self._bodies.refuse(stream, late(self._port.limits))
        self._advance()

    def _reset(self, stream: Stream | None) -> None:
        """Forget a request that the peer reset, unless it does nothing else."""
        if stream is None:
            return
        self._excess_resets += 1
        if self._excess_resets > self._port.limits.pipelined:
            text = "more requests are given up than are answered"
            raise FrameLimitError(ErrorCodes.ENHANCE_YOUR_CALM, text)
        self._abandon(stream)

    def _abandon(self, stream: Stream) -> None:
        """Forget a request; one that is decided goes on, and counts as one until it is."""
        stream.is_abandoned = True
        self._bodies.abandon(stream)
        if stream in self._deciding:
            return
        del self._streams[stream.number]
        if stream in self._queue:
            self._queue.remove(stream)
        self._unsent.remove(stream)

    def _abandon_all(self) -> None:
        # The latest first: none gets the turn of another and opens a window that is closed with the rest.
        for stream in reversed(tuple(self._streams.values())):
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
        if self._refuses_streams and not self._streams:
            self._close_connection()
        self._watch()

    def _may_answer(self) -> bool:
        connection = self._connection
        is_read = connection.is_writable and not self._unsent and not connection.is_over
        return is_read and bool(self._queue) and self._awaited_page is None

    def _answer_to(self, stream: Stream) -> "Answer":
        if stream.reply is not None:
            return stream.reply
        if stream.page is not None:
            return stream.page.render(self._connection.transport, stream.headers)
        assert stream.endpoint is not None, "one of the three is there"
        return stream.endpoint.answer(bytes(stream.body))

    def _await(self, stream: Stream, answer: "Awaitable[Reply]") -> None:
        if stream.page is not None:
            self._awaited_page = stream
        work = self._send_awaited(stream, answer)
        self._deciding[stream] = self._port.tasks.create_task(work, name="request")

    async def _send_awaited(self, stream: Stream, answer: "Awaitable[Reply]") -> None:
        reply = await stable(answer)
        del self._deciding[stream]
        if self._awaited_page is stream:
            self._awaited_page = None
        if self._connection.is_gone():
            return
        if stream.is_abandoned:
            del self._streams[stream.number]
        else:
            self._send(stream, reply)
        self._advance()

    def _send(self, stream: Stream, reply: Reply) -> None:
        self._bodies.release(stream)
        self._connection.note_use()
        self._excess_resets = max(0, self._excess_resets - 1)
        if self._unsent.begin(stream, reply):
            self._send_bodies()
        else:
            self._end(stream)

    def _send_bodies(self) -> None:
        """Send as much of the answers as the peer's windows let through."""
        for stream, size, is_end in self._unsent.send():
            self._frames.note_bytes(size)
            if is_end:
                self._end(stream)

    def _end(self, stream: Stream) -> None:
        """Forget a request that is answered."""
        del self._streams[stream.number]
        self._frames.note_progress()
        if not stream.is_complete:
            # The rest of its body need not be sent.
            self._codec.reset_stream(stream.number, ErrorCodes.NO_ERROR)
        if self._port.is_draining:
            self._send_goaway()

    # The end of the connection.

    def _send_goaway(self) -> None:
        """Send GOAWAY: the peer makes further requests elsewhere; those that it has sent so far are answered."""
        if not self._refuses_streams:
            self._refuses_streams = True
            self._flush()
            self._connection.transport.write(goaway(self._codec.highest_inbound_stream_id))

    def _abort(self, error: Exception) -> None:
        """Close the connection of a peer whose bytes have no further meaning."""
        _log.warning("malformed HTTP request", error=one_line(str(error)))
        self._close_connection()

    def _close_connection(self) -> None:
        """Close; awaited decisions go on. Idempotent."""
        if self._connection.is_over:
            return
        self._write()
        self._refuses_streams = self._connection.is_over = True
        self._abandon_all()
        self._connection.close()

    def _flush(self) -> None:
        if not self._connection.is_over:
            self._bodies.acknowledge()
            self._write()

    def _write(self) -> None:
        sent = self._codec.data_to_send()
        if sent:
            self._connection.transport.write(sent)

    # What is waited for.

    def _watch(self) -> None:
        wait = self._waits_for()
        frame = self._frames.count if wait is Wait.HEAD else 0
        is_held = self._frames.is_behind or not self._connection.is_writable
        self._connection.watch(wait, frame, is_held=is_held)

    def _waits_for(self) -> Wait:
        if self._unsent or not self._connection.is_writable:
            return Wait.READER
        if self._frames.awaits_end:
            return Wait.HEAD
        return Wait.REQUEST if self._codec.highest_inbound_stream_id else Wait.FIRST_REQUEST

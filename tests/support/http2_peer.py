"""A client of HTTP/2 on a connection in memory, by h2."""

import struct
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from http_edge.http2.http2_protocol import Http2Protocol
from http_edge.limits import Limits
from http_edge.peer_connection import PortState
from tests.support.endpoints import OneConnection, Served, serving_all_kinds

_GOAWAY = 7
HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 1, 3, 4, 6, 9
"""Types of frames."""
GREETED = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The preface of a client, and empty settings."""
LIMITS = Limits(connections=4, body_bytes=300_000, large_body_bytes=70_000, large_bodies=1)
LONG = b"x" * 100_000
"""The page `/long`: more than a window."""


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return (
        struct.pack(">HBBBL", len(payload) >> 8, len(payload) & 255, kind, flags, stream) + payload
    )


@dataclass
class Answered:
    """What a stream was answered so far."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False
    informed: list[int] = field(default_factory=list)
    reset: int | None = None


class Http2Peer:
    """A connection to the port, and what came back on it."""

    def __init__(self, state: PortState, *, acknowledges: bool = True) -> None:
        """`acknowledges`: whether answers are read, so that windows are open again."""
        self._connection = OneConnection(state, Http2Protocol)
        self._acknowledges = acknowledges
        self.protocol = self._connection.protocol
        self.transport = self._connection.transport
        self.codec = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.codec.initiate_connection()
        self.answered: dict[int, Answered] = {}
        self.goaway: tuple[int, ErrorCodes] | None = None
        # last stream, why
        self._read = 0

    def request(
        self,
        path: str,
        body: bytes | None = None,
        *headers: tuple[str, str],
        method: str = "",
        ends: bool = True,
    ) -> int:
        """Prepare a request; without a body it is GET. Return its stream."""
        number = self.codec.get_next_available_stream_id()
        method = method or ("GET" if body is None else "POST")
        fields = [(":method", method), (":scheme", "https"), (":authority", "x"), (":path", path)]
        if body is not None and ends and not any(name == "content-length" for name, _ in headers):
            fields.append(("content-length", str(len(body))))
        self.codec.send_headers(number, [*fields, *headers], end_stream=ends and not body)
        if body:
            self.codec.send_data(number, body, end_stream=ends)
        self.answered[number] = Answered()
        return number

    async def exchange(self) -> None:
        """Send what was prepared, and read what comes back, until neither side has more to say."""
        while True:
            sent = self.codec.data_to_send()
            await self._connection.feed(*([sent] if sent else []))
            if not self._receive() and not sent:
                return

    async def send(self, *raw: bytes) -> None:
        """Send bytes of the test's own, and read what comes back."""
        await self._connection.feed(*raw)
        self._receive()

    async def ask(
        self, path: str, body: bytes | None = None, *headers: tuple[str, str]
    ) -> Answered:
        number = self.request(path, body, *headers)
        await self.exchange()
        return self.answered[number]

    def _receive(self) -> bool:
        written = self._connection.written[self._read :]
        self._read += len(written)
        is_any = bool(written)
        while written:
            size = 9 + int.from_bytes(written[:3], "big")
            frame, written = written[:size], written[size:]
            if frame[3] == _GOAWAY:
                # h2 would take no answers after it.
                last, code = struct.unpack(">LL", frame[9:17])
                self.goaway = (last, ErrorCodes(code))
                continue
            for event in self.codec.receive_data(frame):
                self._take(event)
        return is_any

    def _take(self, event: events.Event) -> None:
        match event:
            case events.InformationalResponseReceived():
                status = int(dict(event.headers or [])[b":status"])
                self.answered[event.stream_id or 0].informed.append(status)
            case events.ResponseReceived():
                answered = self.answered[event.stream_id or 0]
                answered.headers = dict(event.headers or [])
                answered.status = int(answered.headers[b":status"])
            case events.DataReceived():
                answered = self.answered[event.stream_id or 0]
                answered.body += event.data or b""
                if self._acknowledges:
                    flow = event.flow_controlled_length or 0
                    self.codec.acknowledge_received_data(flow, event.stream_id or 0)
            case events.StreamEnded():
                self.answered[event.stream_id or 0].is_whole = True
            case events.StreamReset():
                self.answered[event.stream_id or 0].reset = event.error_code
            case _:
                pass


def serving(limits: Limits = LIMITS) -> AbstractAsyncContextManager[Served[Http2Peer]]:
    return serving_all_kinds(limits, Http2Peer, long_page=LONG)

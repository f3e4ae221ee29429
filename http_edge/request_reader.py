"""Requests of a connection: httptools' events as values, heads and bodies within their limits.

httptools (llhttp) is strict about framing: two lengths, a length beside chunks, a folded header or a bare line
feed end the connection, so that no two readers can differ about the end of a body.
"""

import enum
from typing import TYPE_CHECKING, final

import httptools
import msgspec

from http_edge.body import too_large

if TYPE_CHECKING:
    from collections import deque

    from http_edge.body import Unread
    from http_edge.limits import Limits
    from http_edge.replies import Reply
    from http_edge.routes import Endpoint


class MalformedRequestError(Exception):
    """What comes is no request, or exceeds a limit; the connection ends with `status`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Phase(enum.Enum):
    """State of a request, from its head to its answer."""

    QUEUED = enum.auto()
    """Behind another request of its connection."""
    READING = enum.auto()
    DECIDING = enum.auto()
    """An answer is awaited."""
    ANSWERED = enum.auto()
    """The rest of its body, if any, is discarded."""


@final
class Request(msgspec.Struct, eq=False):
    """A request whose head is complete; its body may still be on its way."""

    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    """Headers by name in lower case."""
    length: int | None = None
    """Length of the body, as declared."""
    is_old: bool = False
    """Whether it is of HTTP/1.0."""
    is_last: bool = False
    """Whether the connection ends with its answer."""
    refusal: "Reply | None" = None
    """The answer to what is malformed."""
    endpoint: "Endpoint | None" = None
    """What its body is read for."""
    phase: Phase = Phase.QUEUED
    is_complete: bool = False
    """Whether nothing of it is to come."""
    fault: "Unread | None" = None
    """Why its body is not read to the end."""
    body: bytearray = msgspec.field(default_factory=bytearray)
    """What came of it, as one piece: as many as its bytes would take twenty times its memory."""

    @property
    def is_readable(self) -> bool:
        """Return whether it can be decided: its body is there, or will not be."""
        return self.is_complete or self.fault is not None

    def add(self, part: bytes, limits: "Limits") -> None:
        """Take a part of the body, unless nobody will read it."""
        if self.phase is Phase.ANSWERED or self.fault is not None:
            return
        if len(self.body) + len(part) > limits.body_bytes:
            self.fault = too_large(limits)
            self.body.clear()
        else:
            self.body += part


@final
class RequestReader:
    """Appends each request to `requests` when its head is complete; its body follows there."""

    def __init__(self, requests: "deque[Request]", limits: "Limits") -> None:
        self._requests = requests
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_size = self._fields = 0
        self._has_progress = False
        self._unfinished = 0
        # bytes since the last event: of a head, of white space before one, or of trailers
        self.heads = 0
        """Complete ones so far."""
        self.is_in_head = False
        self.is_over = False
        """Whether the last request is complete; whatever follows is none."""

    @property
    def awaits_head(self) -> bool:
        """Return whether the end of a head is due."""
        return self.is_in_head or self._unfinished > 0

    def feed(self, data: bytes) -> bool:
        """Read on; return whether a head or a part of a body was among the data.

        Raises:
            MalformedRequestError: requests that came before it are read.
        """
        self._has_progress = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.is_over:
                return True
            if isinstance(error.__context__, MalformedRequestError):
                raise error.__context__ from None
            raise MalformedRequestError(400, str(error)) from error
        self._unfinished = 0 if self._has_progress else self._unfinished + len(data)
        if self._unfinished > self._limits.head_bytes:
            raise self._head_too_large()
        return self._has_progress

    # The events; an exception stops the parser.

    def on_message_begin(self) -> None:
        self.is_in_head = True
        self._target = b""
        self._headers = {}
        self._head_size = self._fields = 0

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._head_size += len(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_in_head:
            return  # a trailer
        self._head_size += len(name) + len(value)
        self._fields += 1
        # Of two the first counts, for all readers alike.
        self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        parser, limits, headers = self._parser, self._limits, self._headers
        if self._head_size > limits.head_bytes or self._fields > limits.head_fields:
            raise self._head_too_large()
        version = parser.get_http_version()
        is_old = version == "1.0"
        if not is_old and version != "1.1":
            raise MalformedRequestError(400, f"HTTP/{version} is not spoken")
        if is_old and b"transfer-encoding" in headers:
            raise MalformedRequestError(400, "HTTP/1.0 has no Transfer-Encoding")
        if parser.should_upgrade():
            raise MalformedRequestError(400, "no other protocol is spoken")
        if len(self._requests) >= limits.pipelined:
            raise MalformedRequestError(429, "too many requests wait for their answers")
        length = headers.get(b"content-length")
        self._requests.append(
            Request(
                parser.get_method(),
                self._target.partition(b"?")[0],
                headers,
                int(length) if length is not None else None,
                is_old,
                not parser.should_keep_alive(),
            )
        )
        self.heads += 1
        self.is_in_head = False
        self._has_progress = True

    def on_body(self, part: bytes) -> None:
        self._has_progress = True
        self._requests[-1].add(part, self._limits)

    def on_message_complete(self) -> None:
        self._has_progress = True
        request = self._requests[-1]
        request.is_complete = True
        self.is_over = request.is_last

    def _head_too_large(self) -> MalformedRequestError:
        limits = self._limits
        text = f"more than {limits.head_bytes} bytes or {limits.head_fields} fields of a head"
        return MalformedRequestError(431, text)

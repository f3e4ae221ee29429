"""Replies of the port, as bytes on the wire."""

from email.utils import format_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from api.clock import Clock

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Reply(msgspec.Struct, frozen=True):
    """An HTTP answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: bytes = b""
    """Further ones, each with its line's end."""


def error_reply(status: int, headers: bytes = b"") -> Reply:
    """Return a reply that says no more than its status does."""
    text = f"{status}: {HTTPStatus(status).phrase}"
    return Reply(status, text.encode(), TEXT, headers)


@final
class ReplyEncoder:
    """Encodes replies. The parts of a head that recur are encoded once."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        # (status, content type) -> the lines of both
        self._starts: dict[tuple[int, str], bytes] = {}
        self._date = b""
        self._second = -1

    def encode(self, reply: Reply, connection: bytes, *, has_body: bool = True) -> bytes:
        """Return head and body; `connection` is that header, or nothing.

        Without a body, as HEAD is answered, the length is that of the body all the same.
        """
        key = (reply.status, reply.content_type)
        start = self._starts.get(key)
        if start is None:
            start = self._starts[key] = _start(reply)
        return b"%bContent-Length: %d\r\nDate: %b\r\n%b%b\r\n%b" % (
            start,
            len(reply.body),
            self._now(),
            reply.headers,
            connection,
            reply.body if has_body else b"",
        )

    def fields(self, reply: Reply, *, has_body: bool = True) -> list[tuple[bytes, bytes]]:
        """Return the head as HTTP/2 has it: names in lower case, the status as one of them.

        The length is told where there is no body; the end of a stream tells it otherwise.
        """
        fields = [
            (b":status", b"%d" % reply.status),
            (b"content-type", reply.content_type.encode()),
            (b"date", self._now()),
        ]
        if not has_body:
            fields.append((b"content-length", b"%d" % len(reply.body)))
        for line in reply.headers.splitlines():
            name, _, value = line.partition(b": ")
            fields.append((name.lower(), value))
        return fields

    def _now(self) -> bytes:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._date = format_datetime(self._clock.utc_now(), usegmt=True).encode()
        return self._date


def _start(reply: Reply) -> bytes:
    phrase = HTTPStatus(reply.status).phrase
    return f"HTTP/1.1 {reply.status} {phrase}\r\nContent-Type: {reply.content_type}\r\n".encode()

"""Request bodies: why one is not read, and how many large ones are read at a time.

A peer's broken bytes cost an answer and a log line, no traceback.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from kube.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from http_edge.limits import Limits


@dataclass(frozen=True, slots=True)
class Unread:
    """Why there is no body: an HTTP status, its reason as Kubernetes calls it, and a text."""

    status: int
    reason: str
    text: str


BROKEN_OFF: Final = Unread(400, "BadRequest", "the connection broke before the body's end")


def refusal_of_body(
    headers: "Mapping[bytes, bytes]", length: int | None, limits: "Limits"
) -> Unread | None:
    """Return why a body that is announced so is not read, or None."""
    for header, name in ((b"content-encoding", "Content"), (b"transfer-encoding", "Transfer")):
        encoding = headers.get(header)
        # The API server and kube-scheduler compress nothing, and few bytes can be very many.
        if encoding is not None and encoding.lower() not in {b"identity", b"chunked"}:
            quoted = one_line(encoding.decode(errors="replace"))
            text = f"{name}-Encoding {quoted} is not understood; send the body as it is"
            return Unread(415, "UnsupportedMediaType", text)
    return too_large(limits) if length is not None and length > limits.body_bytes else None


def too_large(limits: "Limits") -> Unread:
    text = f"the body is larger than {limits.body_bytes} bytes"
    return Unread(413, "RequestEntityTooLarge", text)


def late(limits: "Limits") -> Unread:
    return Unread(408, "Timeout", f"the body did not arrive within {limits.body_s:g} s")


def unreadable(text: str) -> Unread:
    return Unread(400, "BadRequest", f"the body cannot be read: {one_line(text)}")


@final
class LargeBodies:
    """Readers of large bodies: so many at a time, in the order of their arrival."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        # reader -> what tells it that it may read; None while it does
        self._readers: dict[Hashable, Callable[[], None] | None] = {}

    def add(self, reader: "Hashable", on_turn: "Callable[[], None]") -> None:
        """Let it read now, or call `on_turn` as soon as it may."""
        self._readers[reader] = None if self._free else on_turn
        self._free -= bool(self._free)

    def is_waiting(self, reader: "Hashable") -> bool:
        return self._readers.get(reader) is not None

    def remove(self, reader: "Hashable") -> None:
        """Let the next one read in its place. Idempotent."""
        if reader not in self._readers or self._readers.pop(reader) is not None:
            return
        for waiting, on_turn in self._readers.items():
            if on_turn is not None:
                self._readers[waiting] = None
                on_turn()
                return
        self._free += 1

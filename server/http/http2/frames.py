"""Frames of HTTP/2 (RFC 9113, section 4), cut from what a peer sends and bounded before h2 reads them.

h2 checks what a frame says. It bounds neither the number of frames that say nothing, nor a header block before
its end, and reads an overlong frame to its end before it refuses it.
"""

import struct
from typing import TYPE_CHECKING, Final, final

from h2.errors import ErrorCodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.http.limits import Limits

SMALLEST_FRAME_LIMIT: Final = 2**14
"""Below which no peer may be asked to stay."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_SIZE: Final = 9
_HEADERS: Final = 0x1
_GOAWAY: Final = 0x7
_CONTINUATION: Final = 0x9
_END_HEADERS: Final = 0x4


class FrameLimitError(Exception):
    """A limit is exceeded; the connection ends with `code`."""

    def __init__(self, code: ErrorCodes, text: str) -> None:
        super().__init__(text)
        self.code = code


def goaway(last_stream: int) -> bytes:
    """Return the frame that announces the end: streams after `last_stream` are not processed.

    h2 has none after which the streams so far can be answered.
    """
    return struct.pack(">HBBBLLL", 0, 8, _GOAWAY, 0, 0, last_stream, ErrorCodes.NO_ERROR)


@final
class FrameReader:
    """Cuts the bytes of one connection into whole frames; the preface counts as one."""

    def __init__(self, limits: "Limits") -> None:
        self._limits = limits
        self._rest = b""
        self._block_bytes = 0
        # of a header block that has not ended
        self._idle = 0
        # frames since the last progress
        self.frame_bytes = max(SMALLEST_FRAME_LIMIT, limits.large_body_bytes)
        """The longest frame."""
        self.count = 0
        """Whole frames so far."""

    @property
    def awaits_rest(self) -> bool:
        """Return whether the end of a frame or of a header block is due."""
        return bool(self._rest) or self._block_bytes > 0

    def note_progress(self) -> None:
        """Note that the latest frame brought a request or an answer on."""
        self._idle = 0

    def feed(self, data: bytes) -> "Iterator[bytes]":
        """Yield each frame that is complete.

        Raises:
            FrameLimitError: frames before it have been yielded.
        """
        if self._rest:
            data = self._rest + data
        at = 0
        while size := self._size_at(data, at):
            frame = data[at : at + size]
            at += size
            self._count(frame)
            yield frame
        self._rest = data[at:]

    def _size_at(self, data: bytes, at: int) -> int:
        """Return the length of the frame that begins there; 0 where it is not complete."""
        if not self.count:
            begun = data[: len(_PREFACE)]
            if not _PREFACE.startswith(begun):
                raise FrameLimitError(ErrorCodes.PROTOCOL_ERROR, "it does not begin as HTTP/2 does")
            return len(_PREFACE) if begun == _PREFACE else 0
        if len(data) - at < _HEAD_SIZE:
            return 0
        length = int.from_bytes(data[at : at + 3], "big")
        if length > self.frame_bytes:
            text = f"a frame of more than {self.frame_bytes} bytes"
            raise FrameLimitError(ErrorCodes.FRAME_SIZE_ERROR, text)
        if data[at + 3] in {_HEADERS, _CONTINUATION}:
            self._bound_head(self._block_bytes + length)
        size = _HEAD_SIZE + length
        return size if len(data) - at >= size else 0

    def _bound_head(self, size: int) -> None:
        if size > self._limits.head_bytes:
            text = f"more than {self._limits.head_bytes} bytes of a head"
            raise FrameLimitError(ErrorCodes.ENHANCE_YOUR_CALM, text)

    def _count(self, frame: bytes) -> None:
        self.count += 1
        self._idle += 1
        if self._idle > self._limits.idle_frames:
            text = f"more than {self._limits.idle_frames} frames that bring no request on"
            raise FrameLimitError(ErrorCodes.ENHANCE_YOUR_CALM, text)
        if self.count > 1 and frame[3] in {_HEADERS, _CONTINUATION}:
            is_end = frame[4] & _END_HEADERS
            # An empty frame without an end awaits one too.
            self._block_bytes = 0 if is_end else self._block_bytes + len(frame)

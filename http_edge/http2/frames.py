"""Frames of HTTP/2 (RFC 9113, section 4), cut from what a peer sends and bounded before h2 reads them.

h2 checks what a frame says. It bounds neither the number of frames that say nothing, nor a header block before
its end, and reads an overlong frame to its end before it refuses it. It keeps every setting that it is sent, known or
not. A frame takes 20 us of h2 whatever its length, so few bytes in many frames cost much: a KiB of a body, or of an
answer, pays for 16 frames, a whole request for all that came before.
"""

import struct
from typing import TYPE_CHECKING, Final, final

from h2.errors import ErrorCodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from http_edge.limits import Limits

SMALLEST_FRAME_LIMIT: Final = 2**14
"""Least frame size that a peer may be limited to."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_SIZE: Final = 9
_DATA: Final = 0x0
_HEADERS: Final = 0x1
_SETTINGS: Final = 0x4
_GOAWAY: Final = 0x7
_CONTINUATION: Final = 0x9
_END_HEADERS: Final = 0x4
_SETTING_SIZE: Final = 6
_SUPPORTED_SETTINGS: Final = range(1, 10)
_KIB: Final = 1024
_FRAMES_A_KIB: Final = 16
"""Frames for each KiB of a body or an answer. Go's client opens windows twice for each 4 KiB that it reads."""


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
        self._data = bytearray()
        self._block_bytes = 0
        # of a header block that has not ended
        self._idle = 0
        # frames that no progress has paid for
        self._unpaid_bytes = 0
        self.frame_bytes = max(SMALLEST_FRAME_LIMIT, limits.large_body_bytes)
        """The longest frame."""
        self.count = 0
        """Whole frames so far."""
        self.is_behind = False
        """Whether frames may wait for the next turn."""

    @property
    def awaits_end(self) -> bool:
        """Return whether the end of a frame or of a header block is due."""
        return bool(self._data) or self._block_bytes > 0

    def note_progress(self) -> None:
        """Note the end of a request or of an answer."""
        self._idle = 0

    def note_bytes(self, size: int) -> None:
        """Note a part of a body, or of an answer."""
        whole, self._unpaid_bytes = divmod(self._unpaid_bytes + size, _KIB)
        self._idle = max(0, self._idle - whole * _FRAMES_A_KIB)

    def feed(self, data: bytes) -> None:
        self._data += data

    def frames(self) -> "Iterator[bytes]":
        """Yield the complete frames, as many as one turn may have.

        Raises:
            FrameLimitError: frames before it have been yielded.
        """
        data, at = self._data, 0
        self.is_behind = False
        for _ in range(self._limits.frames_per_batch):
            size = self._size_at(at)
            if not size:
                break
            frame = bytes(data[at : at + size])
            at += size
            self._count(frame)
            yield _with_supported_settings(frame) if frame[3] == _SETTINGS else frame
        else:
            self.is_behind = at < len(data)
        del data[:at]

    def _size_at(self, at: int) -> int:
        """Return the length of the frame that begins there; 0 where it is not complete."""
        data = self._data
        if not self.count:
            begun = bytes(data[: len(_PREFACE)])
            if not _PREFACE.startswith(begun):
                raise FrameLimitError(ErrorCodes.PROTOCOL_ERROR, "it does not begin as HTTP/2 does")
            return len(_PREFACE) if begun == _PREFACE else 0
        if len(data) - at < _HEAD_SIZE:
            return 0
        length = int.from_bytes(data[at : at + 3], "big")
        self._bound(data[at + 3], length)
        size = _HEAD_SIZE + length
        return size if len(data) - at >= size else 0

    def _bound(self, kind: int, length: int) -> None:
        limits = self._limits
        most = self.frame_bytes
        if kind not in {_DATA, _HEADERS, _CONTINUATION}:
            most = min(most, limits.control_frame_bytes)
        if length > most:
            text = f"a frame of more than {most} bytes"
            raise FrameLimitError(ErrorCodes.FRAME_SIZE_ERROR, text)
        is_head = kind in {_HEADERS, _CONTINUATION}
        if is_head and self._block_bytes + length > limits.head_bytes:
            text = f"more than {limits.head_bytes} bytes of a head"
            raise FrameLimitError(ErrorCodes.ENHANCE_YOUR_CALM, text)
        if kind == _SETTINGS and length > limits.settings_per_frame * _SETTING_SIZE:
            text = f"more than {limits.settings_per_frame} settings in a frame"
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


def _with_supported_settings(frame: bytes) -> bytes:
    """Return a frame SETTINGS without those that no protocol has a meaning for, which are to be ignored."""
    head, payload = frame[3:_HEAD_SIZE], frame[_HEAD_SIZE:]
    if len(payload) % _SETTING_SIZE:
        return frame  # h2 refuses it
    starts = range(0, len(payload), _SETTING_SIZE)
    supported = b"".join(
        payload[at : at + _SETTING_SIZE]
        for at in starts
        if int.from_bytes(payload[at : at + 2], "big") in _SUPPORTED_SETTINGS
    )
    return len(supported).to_bytes(3, "big") + head + supported

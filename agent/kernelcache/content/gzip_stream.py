"""Decompression of a layer while it arrives, in bounded memory.

A layer is one or more gzip members (eStargz has one for each file), and nothing behind them. The decompressed bytes
are counted against the limits before they are handed out, so that a bomb ends early. Memory: one chunk of the
layer and `_MOST` decompressed bytes.
"""

import zlib
from typing import TYPE_CHECKING, Final, final

from agent.kernelcache.content.errors import LayerFault, LayerRefusedError
from agent.kernelcache.content.layer_limits import (
    EXPANSION_FROM_BYTES,
    MAX_EXPANSION,
    MAX_GZIP_MEMBERS,
    ExtractionLimits,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_WITH_GZIP_HEADER: Final = 16 + zlib.MAX_WBITS
_PIECE: Final = 16 * 1024
"""Bytes given to zlib at a time: it copies what it has not consumed."""
_MOST: Final = 256 * 1024


@final
class GzipStream:
    """The decompressed bytes of a layer, read once and in order."""

    def __init__(self, chunks: "Iterator[bytes | memoryview]", limits: ExtractionLimits) -> None:
        """Nothing is read of the chunks yet."""
        self._chunks = chunks
        self._limits = limits
        self._decoder = zlib.decompressobj(_WITH_GZIP_HEADER)
        self._members = 0
        self._chunk = memoryview(b"")
        self._pushed_back = b""
        self._ready = memoryview(b"")
        self._compressed = 0
        self._decompressed = 0

    @property
    def position(self) -> int:
        """Return how many decompressed bytes have been read."""
        return self._decompressed - len(self._ready)

    def parts(self, size: int) -> "Iterator[memoryview]":
        """Yield the next bytes in parts; each is valid until the next one.

        Raises:
            LayerRefusedError: the layer ends before, or it breaks a rule.
        """
        while size:
            if not self._ready and not self._fill():
                raise LayerRefusedError(
                    LayerFault.CUT, f"the archive ends {size} bytes before the end of an entry"
                )
            part = self._ready[:size]
            self._ready = self._ready[size:]
            size -= len(part)
            yield part

    def read(self, size: int) -> bytes:
        """Return the next bytes, whose number the caller has bounded."""
        return b"".join(self.parts(size))

    def skip(self, size: int) -> None:
        """Read the next bytes, and drop them."""
        for _ in self.parts(size):
            pass

    def remaining(self) -> "Iterator[memoryview]":
        """Yield all further bytes in parts."""
        while not self.is_at_end():
            yield from self.parts(len(self._ready))

    def is_at_end(self) -> bool:
        """Return whether all bytes have been read; the layer's last chunk has been as well then."""
        return not self._ready and not self._fill()

    def _fill(self) -> bool:
        """Decompress until there are bytes; return False at the end of the layer."""
        if self._members == 0:
            self._begin_layer()
        while True:
            if self._decoder.eof and not self._begin_member():
                return False
            piece = self._decoder.unconsumed_tail or self._take()
            found = self._decompress(piece)
            if found:
                self._count(len(found))
                self._ready = memoryview(found)
                return True
            if not piece and not self._decoder.eof:
                raise LayerRefusedError(
                    LayerFault.CUT,
                    f"the layer is cut: its gzip data ends after {self._compressed} bytes without"
                    " its end",
                )

    def _begin_layer(self) -> None:
        start = b""
        while len(start) < len(_ZSTD) and (piece := self._take()):
            start += piece
        if not start:
            raise LayerRefusedError(LayerFault.CUT, "the layer is empty")
        if start.startswith(_ZSTD):
            raise LayerRefusedError(
                LayerFault.ZSTD,
                "the layer is compressed with zstd: push the image with gzip (buildah push"
                " --compression-format gzip, docker buildx build --output compression=gzip)",
            )
        if not start.startswith(_GZIP):
            raise LayerRefusedError(
                LayerFault.NOT_GZIP,
                f"the layer is not gzip: it begins with {start[:4].hex(' ')}, not with"
                f" {_GZIP.hex(' ')}",
            )
        self._pushed_back = start
        self._members = 1

    def _begin_member(self) -> bool:
        """Begin the next member; return False where the layer ends."""
        self._pushed_back = self._decoder.unused_data or self._take()
        if not self._pushed_back:
            return False
        if self._pushed_back[0] != _GZIP[0]:
            raise LayerRefusedError(
                LayerFault.TRAILING_DATA,
                f"the layer has data behind its gzip data, from byte"
                f" {self._compressed - len(self._pushed_back)} on",
            )
        self._members += 1
        if self._members > MAX_GZIP_MEMBERS:
            raise LayerRefusedError(
                LayerFault.TOO_MANY_ENTRIES,
                f"the layer has more than {MAX_GZIP_MEMBERS} gzip members",
            )
        self._decoder = zlib.decompressobj(_WITH_GZIP_HEADER)
        return True

    def _take(self) -> bytes:
        """Return the next compressed bytes; none at the end of the layer."""
        if self._pushed_back:
            piece, self._pushed_back = self._pushed_back, b""
            return piece
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._chunk = memoryview(chunk)
        taken = bytes(self._chunk[:_PIECE])
        self._chunk = self._chunk[_PIECE:]
        self._compressed += len(taken)
        return taken

    def _decompress(self, piece: bytes) -> bytes:
        try:
            return self._decoder.decompress(piece, _MOST)
        except zlib.error as error:
            raise LayerRefusedError(
                LayerFault.DAMAGED,
                f"the layer's gzip data is damaged within its first {self._compressed} bytes:"
                f" {error}",
            ) from error

    def _count(self, size: int) -> None:
        self._decompressed += size
        if self._decompressed > self._limits.archive_bytes:
            raise too_large(self._limits)
        most = max(EXPANSION_FROM_BYTES, MAX_EXPANSION * self._compressed)
        if self._decompressed > most:
            raise LayerRefusedError(
                LayerFault.EXPANDS,
                f"the layer expands too much: {self._compressed} bytes of it are already"
                f" {self._decompressed}, and more than {MAX_EXPANSION} times are not extracted",
            )


def too_large(limits: ExtractionLimits) -> LayerRefusedError:
    """Return the refusal of an archive beyond the limit."""
    return LayerRefusedError(
        LayerFault.TOO_LARGE,
        f"the layer expands to more than {limits.archive_bytes} bytes, the limit of a cache",
    )

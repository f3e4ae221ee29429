"""The entries of a tar archive while it arrives: each header is checked before anything is made of it.

`tarfile` parses each header block (`TarInfo.frombuf`); the loop around it is ours. `tarfile`'s own streaming mode ends
silently at a damaged header, so that half a cache would be served; reads a pax header of any size into memory; calls
itself for each extended header; and keeps all entries. Here an archive ends with its mark and nothing behind it,
extended headers are bounded, and one entry is known at a time.

Formats: ustar, pax and GNU long names. Sparse files and continued ones are refused: no tool writes them into a layer.
"""

import tarfile
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.kernelcache.content.errors import LayerFault, LayerRefusedError
from agent.kernelcache.content.gzip_stream import too_large
from agent.kernelcache.content.layer_limits import (
    MAX_COMPONENT_BYTES,
    MAX_HEADER_BYTES,
    MAX_NAME_BYTES,
    ExtractionLimits,
)
from api.text import truncate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.kernelcache.content.gzip_stream import GzipStream

BLOCK: Final = tarfile.BLOCKSIZE
_END: Final = bytes(BLOCK)
_MAX_SIZE_DIGITS: Final = 19
_FIRST_PRINTABLE: Final = " "
_DELETE: Final = "\x7f"


@final
class EntryKind(Enum):
    """What an entry is, in the words of refusals."""

    FILE = "a file"
    DIRECTORY = "a directory"
    SYMBOLIC_LINK = "a symbolic link"
    HARD_LINK = "a hard link"
    DEVICE = "a device"
    FIFO = "a FIFO"


_KINDS: Final = {
    tarfile.REGTYPE: EntryKind.FILE,
    tarfile.AREGTYPE: EntryKind.FILE,
    tarfile.DIRTYPE: EntryKind.DIRECTORY,
    tarfile.SYMTYPE: EntryKind.SYMBOLIC_LINK,
    tarfile.LNKTYPE: EntryKind.HARD_LINK,
    tarfile.CHRTYPE: EntryKind.DEVICE,
    tarfile.BLKTYPE: EntryKind.DEVICE,
    tarfile.FIFOTYPE: EntryKind.FIFO,
}
_PAX: Final = frozenset({tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEntry:
    """An entry of the archive."""

    name: str
    """Relative and normal: no empty part, `.` or `..`; empty for the archive's root."""
    kind: EntryKind
    size: int
    """Bytes of the data that follow; 0 of all but files."""
    mode: int
    """Permission bits, set-uid, set-gid and sticky, as the archive has them."""


def quoted(name: str) -> str:
    """Return a foreign name for a message."""
    return f'"{truncate(ascii(name)[1:-1])}"'


def read_entries(stream: "GzipStream", limits: ExtractionLimits) -> "Iterator[ArchiveEntry]":
    """Yield the archive's entries in order; the caller reads an entry's data from the stream, or leaves it.

    At the end of this the whole layer has been read.

    Raises:
        LayerRefusedError: the archive is damaged, or breaks a rule.
    """
    names = _ExtendedHeaders()
    entries = 0
    while (info := _next_header(stream)) is not None:
        if names.take(info, stream):
            # A global header describes no entry, so that it counts as one.
            entries += info.type == tarfile.XGLTYPE
        else:
            entry = names.entry_of(info)
            if entry.size > limits.archive_bytes - stream.position:
                raise too_large(limits)
            entries += 1
            end = stream.position + _padded(entry.size)
            yield entry
            stream.skip(end - stream.position)
        if entries > limits.entries:
            raise too_many_entries(limits)
    names.refuse_unused()
    _read_padding(stream)


def too_many_entries(limits: ExtractionLimits) -> LayerRefusedError:
    """Return the refusal of an archive beyond the limit."""
    return LayerRefusedError(
        LayerFault.TOO_MANY_ENTRIES,
        f"the layer has more than {limits.entries} files and directories, the limit of a cache",
    )


@final
class _ExtendedHeaders:
    """The extended headers before an entry: at most one of each format, and what they say about it."""

    def __init__(self) -> None:
        self._pax: dict[str, str] | None = None
        self._gnu: str | None = None

    def take(self, info: tarfile.TarInfo, stream: "GzipStream") -> bool:
        """Read an extended header; return False where the header is an entry's own."""
        if info.type in _PAX:
            if self._pax is not None:
                raise _damaged("two pax headers follow each other")
            self._pax = _pax_records(_data_of(info, stream))
        elif info.type == tarfile.XGLTYPE:
            if _pax_records(_data_of(info, stream)).keys() & {"path", "size"}:
                raise _damaged("a global pax header has a path or a size")
        elif info.type == tarfile.GNUTYPE_LONGNAME:
            if self._gnu is not None:
                raise _damaged("two long names follow each other")
            self._gnu = _text(_data_of(info, stream).rstrip(b"\0"))
        elif info.type == tarfile.GNUTYPE_LONGLINK:
            # Of a link, which is refused or left out by its own header.
            _data_of(info, stream)
        else:
            return False
        return True

    def entry_of(self, info: tarfile.TarInfo) -> ArchiveEntry:
        pax, self._pax = self._pax or {}, None
        gnu, self._gnu = self._gnu, None
        raw = pax.get("path") or gnu or info.name
        kind = _KINDS.get(info.type)
        if kind is None or any(key.startswith("GNU.sparse.") for key in pax):
            raise LayerRefusedError(
                LayerFault.BAD_ENTRY,
                f"the archive's entry {quoted(raw)} has the type {ascii(info.type)[2:-1]}, which is"
                " no plain file: sparse and continued files are not extracted",
            )
        if kind is EntryKind.FILE and raw.endswith("/"):
            raise _bad_name(raw, "ends with a slash, and is a file")
        return ArchiveEntry(
            name=_relative(raw),
            kind=kind,
            size=_size_of(info, pax, kind),
            mode=info.mode,
        )

    def refuse_unused(self) -> None:
        if self._pax is not None or self._gnu is not None:
            raise _damaged("it ends with a header of an entry that is not there")


def _next_header(stream: "GzipStream") -> tarfile.TarInfo | None:
    """Return the next header block; None at the archive's mark of its end."""
    if stream.is_at_end():
        raise LayerRefusedError(
            LayerFault.CUT, "the archive is cut: it has no mark of its end (a block of zeros)"
        )
    block = stream.read(BLOCK)
    if block == _END:
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise _damaged(f"the header at byte {stream.position - BLOCK} is none ({error})") from error
    if info.size < 0:
        raise _damaged(f"the header at byte {stream.position - BLOCK} has a negative size")
    return info


def _read_padding(stream: "GzipStream") -> None:
    """Read what follows the first block of zeros: more of them, to a record's end."""
    for part in stream.remaining():
        data = bytes(part).lstrip(b"\0")
        if data:
            raise LayerRefusedError(
                LayerFault.TRAILING_DATA,
                f"the archive has data behind its end, at byte {stream.position - len(data)}",
            )


def _data_of(info: tarfile.TarInfo, stream: "GzipStream") -> bytes:
    if info.size > MAX_HEADER_BYTES:
        raise _damaged(
            f"an extended header has {info.size} bytes; at most {MAX_HEADER_BYTES} are read"
        )
    return stream.read(_padded(info.size))[: info.size]


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _pax_records(data: bytes) -> dict[str, str]:
    """Return the records of a pax header that name or measure an entry: keyword -> value."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        digits, has_space, _ = data[at : at + 8].partition(b" ")
        length = int(digits) if has_space and digits.isdigit() else 0
        record = data[at : at + length]
        key, has_value, value = record[len(digits) + 1 : -1].partition(b"=")
        if len(record) != length or record[-1:] != b"\n" or not has_value:
            raise _damaged("a pax header's record has a wrong length")
        name = key.decode("ascii", "replace")
        if name in {"path", "size"} or name.startswith("GNU.sparse."):
            found[name] = _text(value)
        at += length
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _size_of(info: tarfile.TarInfo, pax: dict[str, str], kind: EntryKind) -> int:
    text = pax.get("size")
    if text is not None and not (
        text.isascii() and text.isdigit() and len(text) <= _MAX_SIZE_DIGITS
    ):
        raise _damaged("a pax header's size is no number")
    size = info.size if text is None else int(text)
    if size and kind is not EntryKind.FILE:
        # Readers disagree on whether data follows then: what one takes for data another takes for entries.
        raise _damaged(f"the entry {quoted(info.name)} is {kind.value}, and has {size} bytes")
    return size


def _relative(raw: str) -> str:
    """Return the normal form of a name that stays below the archive's root."""
    try:
        encoded = raw.encode("utf-8")
    except UnicodeEncodeError:
        raise _bad_name(raw, "is not UTF-8") from None
    if len(encoded) > MAX_NAME_BYTES:
        raise _bad_name(raw, f"has {len(encoded)} bytes; at most {MAX_NAME_BYTES} are possible")
    if any(item < _FIRST_PRINTABLE or item == _DELETE for item in raw):
        raise _bad_name(raw, "has control characters")
    if raw.startswith("/"):
        raise _bad_name(raw, "is absolute")
    parts = [part for part in raw.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise _bad_name(raw, 'has a part ".."')
    if any(len(part.encode("utf-8")) > MAX_COMPONENT_BYTES for part in parts):
        raise _bad_name(raw, f"has a part of more than {MAX_COMPONENT_BYTES} bytes")
    return "/".join(parts)


def _bad_name(raw: str, cause: str) -> LayerRefusedError:
    return LayerRefusedError(LayerFault.BAD_NAME, f"the archive's entry {quoted(raw)} {cause}")


def _damaged(cause: str) -> LayerRefusedError:
    return LayerRefusedError(LayerFault.DAMAGED, f"the archive is damaged: {cause}")

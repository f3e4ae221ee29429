"""Server-sent events as bytes.

A snapshot comes in parts: one for each viewer, with who it is, and those that viewers with equal rights share. JSON has no
line ends, so that an event is one line of data.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from api.text import legible_json
from api.version import VERSION
from console.data.tables.table import SECTIONS
from console.rows import SCHEMA
from kube.batches import steps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from console.data.tables.table import Section, TableRow, TableRows
    from console.data.tables.visible_rows import RowViewer
    from console.rows import PoolHistory, Row, ViewerRow

ROWS_A_PART: Final = 1_000
"""Some 200 KB, in a few milliseconds."""
_encoder: Final = msgspec.json.Encoder()


def change_event(at: str, sections: "Mapping[Section, Mapping[str, Row | None]]") -> bytes:
    """Return a `ConsoleChange`."""
    fields: dict[str, object] = {"at": at, **dict(sections.items())}
    return b"event: change\ndata: %b\n\n" % _encode(fields)


def snapshot_head(
    viewer: "ViewerRow", partial: "Sequence[str]", *, origin: str, at: str, since: str
) -> bytes:
    """Return the beginning of a `ConsoleSnapshot`, up to its rows."""
    fields = {
        "schema": SCHEMA,
        "version": VERSION,
        "origin": origin,
        "at": at,
        "since": since,
        "viewer": viewer,
        "partial": partial,
    }
    return b"event: snapshot\ndata: %b" % _encode(fields)[:-1]


async def snapshot_parts(
    rows: "TableRows", histories: "Mapping[str, PoolHistory]", viewer: "RowViewer"
) -> "AsyncIterator[bytes]":
    """Yield the rest of a snapshot; others have their turn after each part."""
    for section in SECTIONS:
        is_whole = viewer.sees_whole(section)
        opening = b',"%b":{' % section.encode()
        for row in steps(list(rows[section].items()), ROWS_A_PART):
            part = _encode(dict(row if is_whole else _visible_rows(row, viewer)))[1:-1]
            if part:
                yield opening + part
                opening = b","
            await asyncio.sleep(0)
        yield b"}" if opening == b"," else opening + b"}"
    yield b',"history":%b}\n\n' % _encode(histories)


def _encode(value: object) -> bytes:
    return legible_json(_encoder.encode(value))


def _visible_rows(
    rows: "Sequence[tuple[str, TableRow]]", viewer: "RowViewer"
) -> "Iterator[tuple[str, Row]]":
    for key, row in rows:
        seen = viewer.row(row)
        if seen is not None:
            yield key, seen

"""Answers as tables, JSON, YAML or names."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.text import printable, printable_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kubectl_gpu.terminal import Terminal

API_VERSION: Final = "cli.gpu.deckhouse.io/v1alpha1"
"""API version of every document that a verb prints: fields are added to it, and none is renamed or taken away."""


class Document(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag=True
):
    """Base of the documents of `-o json` and `-o yaml`; the class's name is the kind."""

    api_version: str = API_VERSION


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of what documents consist of."""


class Tone(Enum):
    """What a colour says; the text says it, too."""

    PLAIN = ""
    GOOD = "32"
    BAD = "31"
    WARNING = "33"
    STRONG = "1"


@final
@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = Tone.PLAIN


@final
@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; the one with the highest `sacrifice` goes first where lines are short."""

    name: str
    is_number: bool = False
    is_wide: bool = False
    """Only with `-o wide`."""
    sacrifice: int = 0
    """0 stays on any terminal."""


@final
@dataclass(slots=True)
class Table:
    columns: "Sequence[TableColumn]"
    rows: "list[Sequence[Cell | str]]" = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """How a table is printed."""

    is_wide: bool = False
    has_header: bool = True
    indent: str = ""


def colored(text: str, tone: Tone, terminal: "Terminal") -> str:
    if not terminal.has_colours or tone is Tone.PLAIN or not text:
        return text
    return f"\x1b[{tone.value}m{text}\x1b[0m"


def json_of(document: Document) -> str:
    return (
        printable_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"
    )


def yaml_of(document: Document) -> str:
    import yaml  # noqa: PLC0415  # 50 ms, for this form alone

    content = msgspec.to_builtins(document)
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    if text.replace("\n", "").isprintable():
        return text
    escaped: str = yaml.safe_dump(content, sort_keys=False)
    return escaped


def structured(document: Document, names: "Iterable[str]", *, form: str) -> str | None:
    """Return the answer in a form for programs; None for those for people."""
    match form:
        case "json":
            return json_of(document)
        case "yaml":
            return yaml_of(document)
        case "name":
            return "".join(f"{printable(name)}\n" for name in names)
        case _:
            return None


def table_text(table: Table, terminal: "Terminal", layout: TableLayout) -> str:
    """Return the lines of a table; on a narrow terminal without the columns that are least needed."""
    printed = [
        place for place, item in enumerate(table.columns) if layout.is_wide or not item.is_wide
    ]
    cells = [[_cell(row[place]) for place in range(len(table.columns))] for row in table.rows]
    left_out: list[str] = []
    while terminal.width is not None and not layout.is_wide:
        widths = _widths(table, cells, printed=printed, layout=layout)
        if len(layout.indent) + sum(widths) + 2 * (len(widths) - 1) <= terminal.width:
            break
        least = max(printed, key=lambda place: table.columns[place].sacrifice)
        if not table.columns[least].sacrifice:
            break
        printed.remove(least)
        left_out.append(table.columns[least].name)
    lines = [*_lines(table, cells, printed, terminal=terminal, layout=layout)]
    if left_out:
        names = ", ".join(reversed(left_out))
        text = f"(no room for {names}: -o wide shows all columns)"
        lines += wrapped(text, terminal, indent=layout.indent)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def wrapped(text: str, terminal: "Terminal", *, indent: str = "", hang: str = "") -> "list[str]":
    """Return the text as lines that fit the terminal; further lines are indented by `hang` as well."""
    text = printable(text)
    if terminal.width is None or len(indent) + len(text) <= terminal.width:
        return [indent + text]
    import textwrap  # noqa: PLC0415  # for narrow terminals alone

    return textwrap.wrap(
        text,
        max(20, terminal.width),
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
    )


def _cell(value: Cell | str) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    return Cell(printable(cell.text), cell.tone)


def _widths(
    table: Table, cells: "list[list[Cell]]", *, printed: "list[int]", layout: TableLayout
) -> "list[int]":
    return [
        max(
            [
                len(table.columns[place].name) if layout.has_header else 0,
                *(len(row[place].text) for row in cells),
            ]
        )
        for place in printed
    ]


def _lines(
    table: Table,
    cells: "list[list[Cell]]",
    printed: "list[int]",
    *,
    terminal: "Terminal",
    layout: TableLayout,
) -> "Iterator[str]":
    widths = dict(zip(printed, _widths(table, cells, printed=printed, layout=layout), strict=True))
    header = [Cell(column.name, Tone.STRONG) for column in table.columns]
    for row in [header, *cells] if layout.has_header else cells:
        yield layout.indent + "  ".join(
            _padded(row[place], widths[place], table.columns[place], terminal=terminal)
            for place in printed
        )


def _padded(cell: Cell, width: int, column: TableColumn, *, terminal: "Terminal") -> str:
    padding = " " * (width - len(cell.text))
    text = colored(cell.text, cell.tone, terminal)
    return padding + text if column.is_number else text + padding

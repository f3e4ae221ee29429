"""Tables on terminals of any width, and documents for programs."""

import io
import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubectl_gpu.answer_forms import (
    API_VERSION,
    Cell,
    Document,
    Table,
    TableColumn,
    TableLayout,
    Tone,
    structured,
    table_text,
    wrapped,
)
from kubectl_gpu.terminal import Terminal


class Example(Document, frozen=True, kw_only=True):
    some_number: int


def a_terminal(width: int | None = None, *, has_colours: bool = False) -> Terminal:
    return Terminal(io.StringIO(), io.StringIO(), width=width, has_colours=has_colours)


TABLE = Table(
    (
        TableColumn("NAME"),
        TableColumn("MODE", sacrifice=1),
        TableColumn("UNITS", is_number=True),
        TableColumn("WHY", is_wide=True),
    ),
    [("a", "Exclusive", "8", "because"), ("longer", "MIG", "12", "")],
)


def test_numbers_stand_right_and_words_left():
    assert table_text(TABLE, a_terminal(), TableLayout()) == (
        "NAME    MODE       UNITS\na       Exclusive      8\nlonger  MIG           12\n"
    )


def test_wide_has_all_columns_and_headers_can_be_left_out():
    assert table_text(TABLE, a_terminal(20), TableLayout(is_wide=True, has_header=False)) == (
        "a       Exclusive   8  because\nlonger  MIG        12\n"
    )


def test_a_narrow_terminal_loses_the_columns_that_are_least_needed_and_says_so():
    assert table_text(TABLE, a_terminal(20), TableLayout()) == (
        "NAME    UNITS\na           8\nlonger     12\n(no room for MODE:\n-o wide shows all\ncolumns)\n"
    )


def test_colours_are_beside_the_text_and_not_in_its_width():
    table = Table((TableColumn("A"), TableColumn("B")), [(Cell("x", Tone.BAD), "y")])
    printed = table_text(table, a_terminal(has_colours=True), TableLayout(has_header=False))
    assert printed == "\x1b[31mx\x1b[0m  y\n"


texts = st.text(max_size=30)


@given(
    width=st.integers(20, 120),
    rows=st.lists(st.tuples(texts, texts, texts, texts), max_size=5),
    sacrifices=st.permutations(range(4)),
)
def test_any_table_fits_unless_its_last_column_does_not(
    width: int, rows: list[tuple[str, ...]], sacrifices: list[int]
):
    columns = [TableColumn(f"C{place}", sacrifice=item) for place, item in enumerate(sacrifices)]
    table = Table(columns, list(rows))
    printed = table_text(table, a_terminal(width), TableLayout())
    assert printed.isprintable() or set("".join(printed.split("\n"))).isdisjoint(
        map(chr, range(32))
    )
    last = sacrifices.index(0)
    widest = max([2, *(len(row[last]) for row in rows)])
    assert all(len(line) <= max(width, widest) for line in printed.split("\n"))


@given(text=st.text(max_size=200), width=st.integers(20, 80))
def test_prose_fits_the_terminal(text: str, width: int):
    for line in wrapped(text, a_terminal(width), indent="  ", hang="  "):
        assert len(line) <= width


def test_documents_have_a_version_and_a_kind():
    text = structured(Example(some_number=3), [], form="json")
    assert text is not None
    expected = {"apiVersion": API_VERSION, "kind": "Example", "someNumber": 3}
    assert json.loads(text) == expected
    assert yaml.safe_load(structured(Example(some_number=3), [], form="yaml") or "") == expected
    assert structured(Example(some_number=3), ["pod/a", "pod/b"], form="name") == "pod/a\npod/b\n"
    assert structured(Example(some_number=3), [], form="table") is None

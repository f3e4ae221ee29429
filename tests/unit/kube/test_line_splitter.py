"""Lines of a watch, however the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import Undecodable
from kube.transport import MAX_EVENT_LINE, LineSplitter


@given(
    st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line), max_size=8),
    st.data(),
)
def test_any_cut_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    splitter = LineSplitter()
    got: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += splitter.feed(stream[start:end])
    assert got == lines
    assert not splitter.is_inside_line


def test_an_unfinished_line_is_known_as_such() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a\nb") == [b"a"]
    assert splitter.is_inside_line


def test_empty_lines_are_no_lines() -> None:
    assert LineSplitter().feed(b"\n\na\n\n") == [b"a"]


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    splitter = LineSplitter()
    piece = b"x" * (MAX_EVENT_LINE // 4)
    for _ in range(4):
        splitter.feed(piece)
    with pytest.raises(Undecodable, match="longer than"):
        splitter.feed(b"x")

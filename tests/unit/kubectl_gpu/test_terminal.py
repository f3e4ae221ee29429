"""The terminal: its width and colours, and readers that go away."""

import io
import os

import pytest

from api.text import printable
from kubectl_gpu.terminal import Terminal


class Unplugged(io.StringIO):
    """A pipe that nothing reads."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


def a_terminal(**fields: object) -> Terminal:
    return Terminal(io.StringIO(), io.StringIO(), **fields)  # type: ignore[arg-type]


def test_texts_of_a_cluster_steer_no_terminal():
    assert printable("a\x1b[31mb\x07\x9b2J\r\nc\td\x7f") == "a?[31mb??2J? c d?"
    terminal = a_terminal()
    terminal.print_error("cleared \x1b[2J")
    assert isinstance(terminal.err, io.StringIO)
    assert terminal.err.getvalue() == "kubectl gpu: cleared ?[2J\n"


def test_a_closed_pipe_ends_nothing():
    terminal = Terminal(Unplugged(), io.StringIO())
    terminal.write("one")
    assert terminal.is_closed
    terminal.write("two")


def test_what_the_encoding_lacks_is_replaced():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal = Terminal(out, io.StringIO())
    assert not terminal.has_unicode
    terminal.write("a ■ b")
    out.seek(0)
    assert out.read() == "a ? b"


def test_a_view_is_drawn_in_place_on_a_terminal_alone():
    pipe, screen = a_terminal(), a_terminal(width=80)
    for item in (pipe, screen):
        item.redraw("x")
    assert isinstance(pipe.out, io.StringIO)
    assert isinstance(screen.out, io.StringIO)
    assert pipe.out.getvalue() == "x"
    assert screen.out.getvalue() == "\x1b[H\x1b[2J\x1b[3Jx"


@pytest.mark.parametrize(
    ("environment", "width", "has_colours"),
    [
        ({}, 80, True),
        ({"COLUMNS": "40"}, 40, True),
        ({"COLUMNS": "0", "NO_COLOR": "1"}, 80, False),
        ({"COLUMNS": "x", "NO_COLOR": ""}, 80, True),
        ({"TERM": "dumb"}, 80, False),
    ],
)
def test_width_and_colours(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], width: int, has_colours: bool
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 24)))
    found = Terminal.of_process(environment)
    assert (found.width, found.has_colours) == (width, has_colours)


def test_a_pipe_has_no_width_and_no_colours():
    found = Terminal.of_process({"COLUMNS": "40"})
    assert (found.width, found.has_colours, found.is_interactive) == (None, False, False)

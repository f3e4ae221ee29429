"""Where answers are written: the streams, how wide they are, and whether they show colours."""

import contextlib
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO, final

from api.text import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM: Final = "kubectl gpu"
_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"
_COLOUR: Final = re.compile(r"(\x1b\[\d+m)")


@final
@dataclass(slots=True)
class Terminal:
    """The process's output; `width` is None where lines may be as long as they like."""

    out: TextIO
    err: TextIO
    width: int | None = None
    has_colours: bool = False
    is_closed: bool = False
    """The reader of the output went away, as `head` does: it has read enough."""

    @classmethod
    def of_process(cls, environment: "Mapping[str, str]" = os.environ) -> "Terminal":
        is_terminal = sys.stdout.isatty()
        return cls(
            sys.stdout,
            sys.stderr,
            width=_width(environment) if is_terminal else None,
            has_colours=is_terminal
            and not environment.get("NO_COLOR")
            and environment.get("TERM") != "dumb",
        )

    @property
    def is_interactive(self) -> bool:
        return self.width is not None

    @property
    def has_unicode(self) -> bool:
        return (self.out.encoding or "").lower().replace("-", "") == "utf8"

    def write(self, text: str) -> None:
        """Write and flush lines that steer no terminal but by its colours, whatever texts of a cluster are among them.

        Once the reader is gone, everything is dropped.
        """
        parts = _COLOUR.split(text) if self.has_colours else [text]
        # Every second part is a colour.
        parts[::2] = map(printable_lines, parts[::2])
        self._write("".join(parts))

    def _write(self, text: str) -> None:
        if self.is_closed:
            return
        try:
            self.out.write(text)
            self.out.flush()
        except BrokenPipeError:
            self.is_closed = True
            _drop_output(self.out)
        except UnicodeEncodeError:
            self.out.write(text.encode("ascii", "replace").decode())
            self.out.flush()

    def redraw(self, text: str) -> None:
        """Write in place of what is shown; below it where the output is no terminal."""
        if self.is_interactive:
            self._write(_CLEAR)
        self.write(text)

    def print_error(self, error: Exception | str) -> None:
        with contextlib.suppress(OSError):
            print(f"{PROGRAM}: {printable(str(error))}", file=self.err)


def _width(environment: "Mapping[str, str]") -> int:
    given = environment.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _drop_output(stream: TextIO) -> None:
    """Let the interpreter's last flush go nowhere, since it would end in a traceback."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

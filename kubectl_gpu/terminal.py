"""Where answers are written: the streams, how wide they are, and whether they show colours."""

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO, final

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM: Final = "kubectl gpu"
_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"
_REPLACED: Final = {code: "?" for code in (*range(32), 127, *range(128, 160)) if chr(code) != "\t"}
_REPLACED_BY_BLANKS: Final = {ord("\n"): " ", ord("\t"): " "}


def printable(text: str) -> str:
    """Return one line without control characters: texts of a cluster steer no terminal."""
    return text.translate(_REPLACED | _REPLACED_BY_BLANKS)


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
        """Write and flush; once the reader is gone, everything is dropped."""
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
        self.write(_CLEAR + text if self.is_interactive else text)

    def complain(self, error: Exception | str) -> None:
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

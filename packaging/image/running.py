"""Programs that the build calls, and its progress lines."""

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

from image.errors import ImageBuildError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_LAST_LINES = 15


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)  # noqa: T201  # a command line


def call(
    command: "Sequence[str]",
    *,
    cwd: "Path | None" = None,
    to: "Path | None" = None,
    environ: "Mapping[str, str] | None" = None,
    cure: str = "",
) -> str:
    """Run a program and return its stdout; empty if that goes `to` a file.

    Raises:
        ImageBuildError: it is missing, or failed; the text ends in its last lines, and the cure.
    """
    with ExitStack() as stack:
        stdout = subprocess.PIPE if to is None else stack.enter_context(to.open("wb"))
        try:
            done = subprocess.run(  # noqa: S603  # commands are the build's own
                command,
                cwd=cwd,
                env=environ,
                check=False,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise ImageBuildError(
                f"{command[0]} is needed and not there. {cure}".rstrip()
            ) from error
    if done.returncode:
        last_lines = "\n".join(
            (done.stderr or done.stdout or "").strip().splitlines()[-_LAST_LINES:]
        )
        raise ImageBuildError(
            f"{' '.join(command[:3])} … failed with {done.returncode}:\n{last_lines}\n{cure}".rstrip()
        )
    return done.stdout or ""

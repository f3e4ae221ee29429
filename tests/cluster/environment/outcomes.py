"""What became of tests that failed, or that were run again since they had: one file a run of pytest."""

from pathlib import Path
from typing import Final

import msgspec

_SAID: Final = 8
"""Last lines that are kept of what a test said, and as many of what components logged meanwhile."""


class Outcome(msgspec.Struct, frozen=True):
    """A test, whether it failed, and the last lines of what it said and of what was logged meanwhile."""

    test: str
    has_failed: bool
    last_lines: list[str]


def outcome_of(test: str, *, has_failed: bool, said: str, logged: str) -> Outcome:
    lines = [*said.splitlines()[-_SAID:], *logged.splitlines()[-_SAID:]]
    return Outcome(test, has_failed=has_failed, last_lines=lines)


def append(path: Path, outcome: Outcome) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(outcome) + b"\n")


def read(path: Path) -> list[Outcome]:
    return msgspec.json.Decoder(Outcome).decode_lines(path.read_bytes())

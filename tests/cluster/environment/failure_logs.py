"""What the components of a run logged while a test failed: the logs themselves stay on the machine that ran it."""

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Sizes = dict[str, int]
"""Name of a log -> its size in bytes at some time."""

_WORSE: Final = frozenset({"warning", "warn", "error", "critical", "fatal"})
_LAST: Final = 3
"""Lines that are shown of each log, of whatever level."""
_MOST_LINES: Final = 12
"""Lines that are shown of each log, at most."""
_WIDTH: Final = 300


def sizes(directory: "Path") -> Sizes:
    return {path.name: path.stat().st_size for path in sorted(directory.glob("*.log"))}


def logged_since(directory: "Path", before: Sizes) -> str:
    """Return the last lines and the latest warnings of each log in JSON that has grown; empty without any."""
    parts = []
    for name, size in sizes(directory).items():
        start = before.get(name, 0)
        if size <= start:
            continue
        with (directory / name).open("rb") as log:
            log.seek(start)
            lines = log.read(size - start).decode("utf-8", "replace").splitlines()
        if current := _worth_printing(lines):
            parts.append("\n".join([f"{name}, {len(lines)} lines:", *current]))
    return "\n".join(parts)


def _worth_printing(lines: "Iterable[str]") -> list[str]:
    """Return lines of a log in JSON; other programs write too much that is of no interest here."""
    levels = [(line, _level(line)) for line in lines]
    with_level = [(line, level) for line, level in levels if level is not None]
    first_of_last = len(with_level) - _LAST
    current = [
        line[:_WIDTH]
        for number, (line, level) in enumerate(with_level)
        if level in _WORSE or number >= first_of_last
    ]
    return current[-_MOST_LINES:]


def _level(line: str) -> str | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    level = found.get("level") if isinstance(found, dict) else None
    return level if isinstance(level, str) else None

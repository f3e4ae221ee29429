"""The node's operating system, by its os-release file (freedesktop.org's os-release(5)).

Read below the mount of the node's root: the container has a file of its own, which a symbolic link that is
followed in the container would lead to.
"""

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.driver.libraries import real_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PLACES: Final = ("etc/os-release", "usr/lib/os-release")
_MAX_BYTES: Final = 64 * 1024


class OperatingSystem(NamedTuple):
    """Empty texts for what the file does not name; rolling distributions have no version."""

    id: str = ""
    version_id: str = ""


def read_operating_system(root: "Path") -> OperatingSystem:
    """Return the operating system of the node whose root is mounted here. Never raises OSError."""
    for place in _PLACES:
        file = real_path(root, root / place)
        if file is None:
            continue
        try:
            with file.open("rb") as opened:
                text = opened.read(_MAX_BYTES).decode("utf-8", errors="replace")
        except OSError:
            continue
        values = dict(_assignments(text))
        return OperatingSystem(values.get("ID", ""), values.get("VERSION_ID", ""))
    return OperatingSystem()


def _assignments(text: str) -> "Iterator[tuple[str, str]]":
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if not equals or name not in {"ID", "VERSION_ID"}:
            continue
        try:
            words = shlex.split(value)
        except ValueError:
            continue
        yield name, words[0] if words else ""

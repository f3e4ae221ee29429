"""The mounts of this process's mount namespace: `/proc/self/mountinfo`, as proc(5) describes it.

Pure parsing, and one function that reads the file. A mount point may be there several times, one mount on the other.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from agent.kernelcache.content.errors import VolumesUnknownError

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_DELETED: Final = "//deleted"
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_FEWEST_FIELDS: Final = 6
_SEPARATOR: Final = b"- "
_LOWER: Final = b"lowerdir="
_FIRST_PATH: Final = re.compile(r"(?:[^\\:]|\\.)+")
_OVERLAY_ESCAPE: Final = re.compile(r"\\(.)")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MountEntry:
    """A mount."""

    root: str
    """The directory of the file system that is mounted; one that was removed meanwhile has its name of before.

    Of an overlay it is the uppermost directory below it, as its mount named it.
    """
    mount_point: str


def parse_mountinfo(content: bytes) -> tuple[MountEntry, ...]:
    """Return the mounts in the file's order; lines of another form are left out."""
    found = (_entry(line) for line in content.split(b"\n"))
    return tuple(item for item in found if item is not None)


def read_mounts(path: Path = MOUNTINFO) -> tuple[MountEntry, ...]:
    """Return the mounts of now.

    Raises:
        VolumesUnknownError: the file cannot be read.
    """
    try:
        return parse_mountinfo(path.read_bytes())
    except OSError as error:
        raise VolumesUnknownError(f"{path} cannot be read: {error.strerror}") from error


def _entry(line: bytes) -> MountEntry | None:
    # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
    fields = line.split(b" ")
    if len(fields) < _FEWEST_FIELDS:
        return None
    root, mount_point = _unescaped(fields[3]), _unescaped(fields[4])
    below = _overlaid(fields[_FEWEST_FIELDS:])
    return MountEntry(root=below or root.removesuffix(_DELETED), mount_point=mount_point)


def _overlaid(fields: list[bytes]) -> str | None:
    """Return the first lower directory of an overlay; None of other file systems."""
    # Some tags, a hyphen, type, source, options of the file system:
    # - overlay overlay ro,lowerdir=/store/content/sha256-1/files:/proc/self/fd/9
    _, _, remaining = b" ".join(fields).partition(_SEPARATOR)
    match remaining.split(b" "):
        case [b"overlay", _, options]:
            found = (part for part in options.split(b",") if part.startswith(_LOWER))
            value = _unescaped(next(found, b"").removeprefix(_LOWER))
            first = _FIRST_PATH.match(value)
            return _OVERLAY_ESCAPE.sub(r"\1", first[0]) if first is not None else None
        case _:
            return None


def _unescaped(field: bytes) -> str:
    """Return the field; blanks, tabs, line feeds and backslashes are octal in the file."""
    plain = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), field)
    return plain.decode("utf-8", "surrogateescape")

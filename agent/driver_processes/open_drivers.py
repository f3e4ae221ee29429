"""Finds the processes that have the driver open, by the numbers of the device files that they have open or mapped.

A container has device files of its own, under any name: a file counts by its major number, which the kernel names for
NVIDIA's modules in `/proc/devices` (195 for devices, others for nvidia-uvm, MIG capabilities, GPUDirect).

Only a file with a name of devices is examined more closely: to look at a file of a network file system may take for ever.
The kernel shows the mappings of a process under a lock that the process may hold while a driver keeps it, so they are read
only where it has no device file open. A process that ends meanwhile, or that may not be read, has nothing open.
"""

import os
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MAX_FILES: Final = 262_144
"""Open files that one search looks at, of 5 microseconds each."""
MAX_FILES_OF_ONE: Final = 16_384
"""Most open files of one process: it opens the driver early, or has few files."""
_MAX_MAPS: Final = 4 * 1024 * 1024
_CHARACTER_DEVICES: Final = "Character devices:"
_MODULE_PREFIX: Final = "nvidia"
_FURTHER_MODULES: Final = frozenset({"gdrdrv"})
"""Modules that keep NVIDIA's from being unloaded."""


class OpenProcess(NamedTuple):
    """A process with the driver open."""

    pid: int
    command: str
    """Its name as the kernel has it: 15 characters at most, no arguments."""


def driver_majors(procfs: Path = Path("/proc")) -> frozenset[int]:
    """Return the major numbers of the driver's device files; empty while no module of it is loaded."""
    try:
        text = (procfs / "devices").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    section = text.partition(_CHARACTER_DEVICES)[2].partition("\n\n")[0]
    found: set[int] = set()
    for line in section.splitlines():
        number, _, name = line.strip().partition(" ")
        is_driver = name.startswith(_MODULE_PREFIX) or name in _FURTHER_MODULES
        if is_driver and number.isdecimal():
            found.add(int(number))
    return frozenset(found)


def processes_with_driver(
    majors: "Collection[int]",
    processes: Path = Path("/proc"),
    *,
    but: "Collection[int]" = (),
    most_files: int = MAX_FILES,
) -> list[OpenProcess]:
    """Return the processes that have a device file of one of these major numbers open or mapped, by pid.

    Takes some 5 microseconds an open file and 80 a process, so it is called in a thread.

    Args:
        majors: of the driver; without one nothing is read.
        processes: the directory of the node's processes.
        but: processes that do not count.
        most_files: that are examined; processes after that many are left out.
    """
    found: list[OpenProcess] = []
    left = most_files if majors else 0
    for pid in _pids(processes) if majors else ():
        if left <= 0:
            break
        if pid in but:
            continue
        directory = f"{processes}/{pid}"
        has_open, count = _has_open(directory, majors, min(left, MAX_FILES_OF_ONE))
        left -= count
        if has_open or _has_mapped(directory, majors):
            found.append(OpenProcess(pid, _command(directory)))
    return found


def _pids(processes: Path) -> list[int]:
    try:
        return sorted(int(path.name) for path in processes.iterdir() if path.name.isdecimal())
    except OSError:
        return []


def _has_open(directory: str, majors: "Collection[int]", most: int) -> tuple[bool, int]:
    """Return whether the process has one of the files open, and how many were examined."""
    count = 0
    for count, path in enumerate(_open_files(directory, most), 1):
        if _may_be_device(_target(path)) and _is_of(path, majors):
            return True, count
    return False, count


def _open_files(directory: str, most: int) -> "Iterator[str]":
    try:
        with os.scandir(f"{directory}/fd") as files:
            yield from (file.path for file in islice(files, most))
    except OSError:
        return


def _has_mapped(directory: str, majors: "Collection[int]") -> bool:
    return any(
        _may_be_device(path) and _is_of(f"{directory}/map_files/{addresses}", majors)
        for addresses, path in _mapped_files(directory)
    )


def _mapped_files(directory: str) -> "Iterator[tuple[str, bytes]]":
    """Yield the addresses and the path of each mapping of a file."""
    for line in _read(f"{directory}/maps", _MAX_MAPS).splitlines():
        # Addresses, rights, offset, device, inode, path; numbers of the device are those of the file system.
        start = line.find(b"/")
        if start > 0:
            first, _, last = line.split(b" ", 1)[0].partition(b"-")
            # The names of map_files have no leading zeros.
            yield f"{int(first, 16):x}-{int(last, 16):x}", line[start:]


def _target(path: str) -> bytes:
    try:
        return os.readlink(os.fsencode(path))  # noqa: PTH115  # thousands of them
    except OSError:
        return b""


def _may_be_device(path: bytes) -> bool:
    return b"/dev/" in path or path.rpartition(b"/")[2].startswith(b"nvidia")


def _is_of(path: str, majors: "Collection[int]") -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116  # as above
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in majors


def _command(directory: str) -> str:
    name = _read(f"{directory}/comm", 64).removesuffix(b"\n").decode(errors="replace")
    return "".join(item if item.isprintable() else "?" for item in name)


def _read(path: str, most: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(most)
    except OSError:
        return b""

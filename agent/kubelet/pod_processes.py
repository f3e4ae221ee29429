"""Finds the pods that have processes on the node, and the pods of processes, by the names of the processes' cgroups.

kubelet names a pod's cgroup for its UID, with dashes (cgroupfs) or underscores (systemd). It drops a pod that is
deleted by force at once, and the container runtime ends its processes later.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from api.names import PodUid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

MAX_BYTES: Final = 64 * 1024
"""The kernel gives as much of such a file in one read as there is; with cgroup v1 it has a kilobyte."""
_POD: Final = re.compile(rb"pod([0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
"""A static pod's UID is a digest without dashes."""


def pods_with_processes(uids: "Collection[PodUid]", procfs: Path = Path("/proc")) -> "set[PodUid]":
    """Return the pods that have a process which has not exited; takes some 20 microseconds a process."""
    names = {
        name.encode(): uid for uid in uids for name in (f"pod{uid}", f"pod{uid.replace('-', '_')}")
    }
    uid_by_cgroups: dict[bytes, PodUid | None] = {}
    # Most processes of a node share their cgroups with others.
    found: set[PodUid] = set()
    for process in procfs.iterdir() if names else ():
        cgroups = _read(process / "cgroup") if process.name.isdigit() else b""
        if cgroups not in uid_by_cgroups:
            uid_by_cgroups[cgroups] = next(
                (uid for name, uid in names.items() if name in cgroups), None
            )
        uid = uid_by_cgroups[cgroups]
        if uid is not None and uid not in found and _runs(process):
            found.add(uid)
    return found


def pods_of_processes(
    pids: "Iterable[int]", procfs: Path = Path("/proc")
) -> "dict[int, PodUid | None]":
    """Return the pod of each process, None for one that is in no pod; without those that have exited.

    A pod may name cgroups below its own for another pod: the outermost counts.
    """
    found: dict[int, PodUid | None] = {}
    for pid in pids:
        cgroups = _read(procfs / str(pid) / "cgroup")
        if cgroups:
            match = _POD.search(cgroups)
            uid = match and PodUid(match[1].decode().replace("_", "-"))
            found[pid] = uid or None
    return found


def _runs(process: Path) -> bool:
    """Return whether a thread has not exited; an exited one has closed its devices."""
    return any(state not in b"ZX" for state in _states(process))


def _states(process: Path) -> "Iterator[bytes]":
    try:
        threads = list((process / "task").iterdir())
    except OSError:
        return
    for thread in threads:
        # The name before it is in parentheses, and may contain some.
        fields = _read(thread / "stat").rpartition(b")")[2].split()
        if fields:
            yield fields[0]


def _read(path: Path) -> bytes:
    """Return the content of a file of the kernel; a file object would take as long as the kernel does."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, MAX_BYTES)
    except OSError:
        return b""
    finally:
        os.close(file)

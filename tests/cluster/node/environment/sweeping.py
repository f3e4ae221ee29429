"""Ends all that a node of the tests left on the machine, whatever ended the session.

    python -m tests.cluster.node.environment.sweeping SECONDS

Runs as a process of its own, in its own session, as `environment/reaper.py` does, for what a reaper
of process groups cannot see: shims leave their group, containers live in cgroups, mounts and
network namespaces have no process at all. It

1. takes the one node that a machine can have (an abstract socket: the kernel frees it with us); it
   waits SECONDS at most for another one's end, which a session that has just been killed needs,
2. sweeps what an earlier session left, notes what kubelet, CNI and pods change on the machine, says `ready`,
3. waits for the end of its standard input, which is the session's end, and sweeps again.

Everything of the node is found by its fixed places (paths.py). Nothing is deleted while anything is
still mounted below: a bind mount leads out of our directories.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.node.environment import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODULE = "tests.cluster.node.environment.sweeping"
LOG = "sweeper.log"
READY = "ready"
TAKEN = "taken by process "

_PROGRAMS = frozenset({"kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc"})
_SHIM_SOCKETS = Path("/run/containerd/s")
"""Whatever containerd's state directory."""
_CGROUPS = Path("/sys/fs/cgroup")
_WITHIN_S = 20
_EVERY_S = 0.05
_CHANGED_SYSCTLS = (
    # ptp:
    "net/ipv4/ip_forward",
    # kubelet:
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def main() -> None:
    with socket.socket(socket.AF_UNIX) as lock:
        if not _take(lock, within_s=float(sys.argv[1])):
            print(f"{TAKEN}{_holder()}", flush=True)
            return
        sweep()
        _note_before()
        make_cgroup()
        print(READY, flush=True)
        sys.stdin.read()
        sweep()


def sweep() -> None:
    """Leave nothing of a node on this machine. Idempotent; fails with what would not go."""
    _until_none(_programs, what="programs", act=_kill)
    _until_none(_contained, what="processes of containers", act=_kill)
    _until_none(_mounts, what="mounts", act=_unmount)
    _delete_shim_sockets()
    _delete_links_to_logs()
    for result in paths.CNI_RESULTS.glob(f"{paths.NAME}-*"):
        result.unlink(missing_ok=True)
    _until_none(_cgroups, what="cgroups", act=_remove_cgroup)
    _restore_before()
    _delete_device_files()
    if paths.STATE.exists():
        # Nobody else's: it was empty before `STATE` was made.
        _delete(paths.KUBELET_DEFAULT_ROOT)
    for owned in paths.OWNED:
        _delete(owned)
    # Made by the programs where they were not there; what others keep there stays.
    for directory in (
        paths.CONTAINER_LOGS,
        paths.CNI_RESULTS,
        paths.CNI_RESULTS.parent,
        _SHIM_SOCKETS,
        _SHIM_SOCKETS.parent,
    ):
        with contextlib.suppress(OSError):
            directory.rmdir()


def make_cgroup() -> None:
    """Make the cgroup that kubelet keeps its pods in, in every hierarchy: it must be there first."""
    for hierarchy in _hierarchies():
        (hierarchy / paths.NAME).mkdir(exist_ok=True)
        controllers = hierarchy / "cgroup.subtree_control"
        if controllers.exists() and hierarchy == _CGROUPS:
            offered = (hierarchy / "cgroup.controllers").read_text().split()
            enable = " ".join(f"+{name}" for name in offered)
            controllers.write_text(enable)
            (hierarchy / paths.NAME / controllers.name).write_text(enable)


def _until_none(
    left: "Callable[[], list[str]]", *, what: str, act: "Callable[[str], None]"
) -> None:
    """Act on what is left, again and again: what is being ended may still start something."""
    deadline = time.monotonic() + _WITHIN_S
    while found := left():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} that would not go within {_WITHIN_S} s: {found}")
        print(f"{time.monotonic():.2f} {len(found)} {what}", file=sys.stderr, flush=True)
        for item in found:
            act(item)
        time.sleep(_EVERY_S)


def _programs() -> list[str]:
    """Return our programs, known by their command lines; their containers' processes are not."""
    return [pid for pid, argv in _command_lines() if _is_ours(argv)]


def _is_ours(argv: list[str]) -> bool:
    is_named = Path(argv[0]).name in _PROGRAMS
    return is_named and any(str(owned) in value for value in argv for owned in paths.OWNED)


def _command_lines() -> "Iterator[tuple[str, list[str]]]":
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and (line := _text(process / "cmdline")):
            yield process.name, line.rstrip("\0").split("\0")


def _contained() -> list[str]:
    pids = {
        pid
        for hierarchy in _hierarchies()
        for members in (hierarchy / paths.NAME).rglob("cgroup.procs")
        for pid in _text(members).split()
    }
    return sorted(pids)


def _kill(pid: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid), signal.SIGKILL)


def _mounts() -> list[str]:
    """Return what is mounted below our directories, the latest first."""
    places = (*paths.OWNED, paths.KUBELET_DEFAULT_ROOT)
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # Spaces and the like are octal escapes; our own paths have none, what lies below may.
        point = line.split()[4].encode().decode("unicode_escape")
        if any(Path(point).is_relative_to(place) for place in places):
            points.append(point)
    return points[::-1]


def _unmount(point: str) -> None:
    subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def _cgroups() -> list[str]:
    """Return our cgroups, the deepest first."""
    ours = [
        str(entry)
        for hierarchy in _hierarchies()
        for top in [hierarchy / paths.NAME]
        if top.exists()
        for entry in (top, *(path for path in top.rglob("*") if path.is_dir()))
    ]
    return sorted(ours, key=len, reverse=True)


def _remove_cgroup(directory: str) -> None:
    with contextlib.suppress(OSError):
        Path(directory).rmdir()


def _hierarchies() -> list[Path]:
    """Return the mounted hierarchies: one of cgroup v2, or those of v1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [
        entry
        for entry in _CGROUPS.iterdir()
        if entry.is_dir() and not entry.is_symlink() and (entry / "cgroup.procs").exists()
    ]


def _delete_shim_sockets() -> None:
    """Delete those that nobody listens on: shims of any containerd keep them in one place."""
    for path in _SHIM_SOCKETS.glob("*"):
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)


def _delete_links_to_logs() -> None:
    if paths.CONTAINER_LOGS.is_dir():
        for link in paths.CONTAINER_LOGS.iterdir():
            if link.is_symlink() and link.readlink().is_relative_to(paths.POD_LOGS):
                link.unlink(missing_ok=True)


def _note_before() -> None:
    for owned in paths.OWNED:
        owned.mkdir()
    values = {name: _text(Path("/proc/sys") / name).strip() for name in _CHANGED_SYSCTLS}
    absent = [str(path) for path in paths.USUAL if not path.exists()]
    notes = {"sysctls": values, "absent": absent}
    paths.NOTES.write_text(json.dumps(notes), encoding="utf-8")


def _restore_before() -> None:
    if not paths.NOTES.exists():
        return
    notes = json.loads(_text(paths.NOTES))
    for name, value in notes["sysctls"].items():
        if value and _text(Path("/proc/sys") / name).strip() != value:
            (Path("/proc/sys") / name).write_text(value)
    for path in notes["absent"]:
        _delete(Path(path))


def _delete_device_files() -> None:
    for file in Path("/dev").glob("nvidia*"):
        if file.stat().st_rdev == paths.DEVICE:
            file.unlink()


def _delete(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _text(path: Path) -> str:
    """Return what the file holds; empty when it is gone, as files of processes and cgroups go."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _take(lock: socket.socket, *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while True:
        try:
            lock.bind(f"\0{paths.NAME}")
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_EVERY_S)
        else:
            lock.listen()
            return True


def _holder() -> int:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(f"\0{paths.NAME}")
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid: int = struct.unpack("3i", credentials)[0]
        return pid


if __name__ == "__main__":
    main()

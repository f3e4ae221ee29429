"""Mounts of contents into pods: read-only, nosuid, nodev, and noexec where nothing is executed.

A content is mounted as an overlay without an upper directory. Its superblock is read-only, and nothing below a mount can
take that off. A bind mount is not enough: from 1.2 on, runc takes all flags off the bind mount that it makes of a
volume for a container whose volumeMount does not say `readOnly`, and a root there could write into the store. An
overlay without an upper directory needs two lower ones; the second is the empty target itself.

A target is opened part by part without following a link, and mounted by its open descriptor: a pod that may write into
its volumes cannot lead a mount elsewhere. What is not as it should be, such as a bind mount of another program, is
EXPOSED, and made again.

Nothing is detached lazily (MNT_DETACH): a mount that is busy stays, and is unmounted at kubelet's next attempt.
"""

import contextlib
import ctypes
import errno
import os
import re
from typing import TYPE_CHECKING, Final, final

from agent.csi.volume_source import CacheVolume, MountState
from agent.errors import MountError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MS_RDONLY: Final = 0x1
_MS_NOSUID: Final = 0x2
_MS_NODEV: Final = 0x4
_MS_NOEXEC: Final = 0x8
_UMOUNT_NOFOLLOW: Final = 0x8

_PROTECTED: Final = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CURES: Final = {
    errno.EBUSY: "a process still uses it; it is tried again",
    errno.ELOOP: "a part of it is a symbolic link: remove it",
    errno.ENOTDIR: "a part of it is a symbolic link or no directory: remove it",
    errno.ENODEV: "the kernel has no overlay file system: load the module overlay",
    errno.EPERM: "the agent must run with CAP_SYS_ADMIN",
    errno.ENOSPC: "the node has too many mounts (sysctl fs.mount-max)",
}

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)


@final
class OverlayMounter:
    """The driver's port `agent.csi.volume_source.Mounter`, by mount(2); paths are absolute and without links."""

    def state(self, target: "Path") -> MountState:
        """Return what is mounted at the path; NOT_MOUNTED where it is missing.

        Raises:
            MountError: a part of it is a link or no directory.
        """
        with _explained(target, "looked at"):
            options = _mount_options(target)
        if options is None:
            return MountState.NOT_MOUNTED
        return MountState.PROTECTED if options & _PROTECTED == _PROTECTED else MountState.EXPOSED

    def mount(self, volume: CacheVolume, target: "Path") -> None:
        """Mount the volume's content at an existing empty directory at which nothing is mounted.

        Raises:
            MountError: a path is missing, a link or no directory, or the kernel refuses; nothing is mounted then.
        """
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
        if not volume.has_shared_objects:
            flags |= _MS_NOEXEC
        with (
            _explained(target, "mounted"),
            # The kernel lists the content by this path, and references are found by it: it is not a descriptor's.
            _opened(volume.content),
            _opened(target.parent) as parent,
            _opened_below(parent, target.name) as place,
        ):
            lower = f"{overlay_path(str(volume.content))}:{_by_descriptor(place)}"
            _mount_overlay(place, flags, lower)

    def unmount(self, target: "Path") -> None:
        """Unmount the uppermost mount at the path.

        Raises:
            MountError: it is still mounted, or nothing is.
        """
        with _explained(target, "unmounted"), _opened(target.parent) as parent:
            _unmount(parent, target.name)


@contextlib.contextmanager
def _explained(target: "Path", verb: str) -> "Iterator[None]":
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        cure = _CURES.get(error.errno or 0)
        text = f"{target} cannot be {verb}: {cause}"
        raise MountError(f"{text}; {cure}" if cure else text) from error


@contextlib.contextmanager
def _opened(path: "Path") -> "Iterator[int]":
    """Open a directory from the root on, without following a link."""
    with contextlib.ExitStack() as opened:
        place = opened.enter_context(_opened_below(None, path.anchor))
        for part in path.parts[1:]:
            place = opened.enter_context(_opened_below(place, part))
        yield place


@contextlib.contextmanager
def _opened_below(directory: int | None, name: str) -> "Iterator[int]":
    place = os.open(name, _FLAGS, dir_fd=directory)
    try:
        yield place
    finally:
        os.close(place)


def _mount_options(target: "Path") -> int | None:
    """Return the options of what is mounted at the path; None where nothing is, or it is missing."""
    with (
        contextlib.suppress(FileNotFoundError),
        _opened(target.parent) as parent,
        _opened_below(parent, target.name) as place,
    ):
        if _mount_id(place) != _mount_id(parent):
            return os.statvfs(_by_descriptor(place)).f_flag
    return None


def _by_descriptor(place: int) -> str:
    """Return a path that leads to exactly the open directory."""
    return f"/proc/self/fd/{place}"


def _mount_id(place: int) -> str:
    """Return the id of the mount that the directory is in (proc(5), fdinfo)."""
    with open(f"/proc/self/fdinfo/{place}", encoding="ascii") as file:  # noqa: PTH123  # no Path of a descriptor
        for line in file:
            key, _, value = line.partition(":")
            if key == "mnt_id":
                return value.strip()
    raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))


def overlay_path(path: str) -> str:
    """Return the path as an option of an overlay has it."""
    return re.sub(r"([\\:,])", r"\\\1", path)


def _mount_overlay(place: int, flags: int, lower: str) -> None:
    name, options = b"overlay", os.fsencode(f"lowerdir={lower}")
    if _libc.mount(name, _by_descriptor(place).encode(), name, flags, options) != 0:
        raise _last_error()


def _unmount(parent: int, name: str) -> None:
    # An open descriptor of the mount itself would keep it busy; the name in its directory does not.
    path = f"{_by_descriptor(parent)}/{name}"
    if _libc.umount2(os.fsencode(path), _UMOUNT_NOFOLLOW) != 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))

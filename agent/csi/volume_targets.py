"""Directories in kubelet's tree at which volumes are mounted: made, mounted, measured and removed.

Every method blocks, and may be repeated; a process that is killed in the middle leaves what the next call mends.
A mount whose flags are incomplete counts as not made: it is removed and made again.
"""

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from cachetools import LRUCache

from agent.csi.volume_source import MountState
from agent.errors import MountError
from agent.files import FileIdentity, file_identity
from kube.errors import one_line

if TYPE_CHECKING:
    from agent.csi.volume_source import CacheVolume, Mounter

TARGET_MODE: Final = 0o750
MAX_STACKED: Final = 8
"""Mounts at one target; there is one, or two where something else mounted there."""
MAX_MEASURED: Final = 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ContentSize:
    """What a directory holds, with all below it."""

    size_bytes: int
    """Size in bytes of regular files."""
    entries: int
    """Files and directories, without the directory itself."""


@final
class VolumeTargets:
    """The targets below kubelet's directory of pods."""

    def __init__(self, pods: Path, mounter: "Mounter") -> None:
        self._pods = pods
        self._mounter = mounter
        self._sizes: LRUCache[FileIdentity, ContentSize] = LRUCache(MAX_MEASURED)
        # Root of a content -> its size. Content does not change, and kubelet asks once a minute for each volume.

    def is_published(self, target: Path) -> bool:
        """Return whether a volume is mounted there, with all flags.

        Raises:
            MountError: the path leads out of kubelet's directory.
        """
        path = self._resolved(target)
        return path is not None and self._mounter.state(path) is MountState.PROTECTED

    def publish(self, volume: "CacheVolume", target: Path) -> None:
        """Mount the content; kubelet has made the directory above the target.

        Raises:
            MountError: it cannot be mounted.
        """
        path = self._resolved(target)
        if path is None:
            raise MountError(f"{target.parent} is missing: kubelet makes it before it calls")
        self._unmount_all(path)
        _make_directory(path)
        try:
            self._mounter.mount(volume, path)
        except MountError:
            with contextlib.suppress(MountError):
                _remove_directory(path)
            raise

    def unpublish(self, target: Path) -> None:
        """Unmount what is there, and remove the target; nothing may be there.

        Raises:
            MountError: it is still mounted, or still there.
        """
        path = self._resolved(target)
        if path is not None:
            self._unmount_all(path)
            _remove_directory(path)

    def size(self, target: Path) -> ContentSize | None:
        """Return the size of a mounted volume's content; None where none is mounted.

        Raises:
            MountError: the path leads out of kubelet's directory.
            OSError: it cannot be read.
        """
        path = self._resolved(target)
        if path is None or self._mounter.state(path) is MountState.NOT_MOUNTED:
            return None
        identity = file_identity(path)
        if identity is None:
            return None
        found = self._sizes.get(identity)
        if found is None:
            found = self._sizes[identity] = measure(path)
        return found

    def _resolved(self, target: Path) -> Path | None:
        """Return the path without links; None where kubelet has removed the directory above it.

        kubelet's root is a link on some nodes, and mounts are listed by what it leads to.
        """
        try:
            above = target.parent.resolve(strict=True)
            pods = self._pods.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, RuntimeError) as error:
            raise MountError(f"{target.parent} cannot be read: {one_line(str(error))}") from error
        if above != pods / target.parent.relative_to(self._pods):
            raise MountError(f"{target.parent} leads through a link to {above}")
        return above / target.name

    def _unmount_all(self, path: Path) -> None:
        for _ in range(MAX_STACKED):
            if self._mounter.state(path) is MountState.NOT_MOUNTED:
                return
            self._mounter.unmount(path)
        raise MountError(f"{path} is still mounted after {MAX_STACKED} times")


def measure(path: Path) -> ContentSize:
    """Return the size of a directory; links are counted and not followed.

    Raises:
        OSError: it cannot be read.
    """
    size_bytes = entries = 0
    left = [str(path)]
    while left:
        with os.scandir(left.pop()) as listing:
            found = list(listing)
        for entry in found:
            entries += 1
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                size_bytes += entry.stat(follow_symlinks=False).st_size
    return ContentSize(size_bytes=size_bytes, entries=entries)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=TARGET_MODE)
    except FileExistsError:
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise MountError(f"{path} is not a directory: remove it") from None
    except OSError as error:
        raise MountError(f"{path} cannot be made: {error.strerror}") from error


def _remove_directory(path: Path) -> None:
    """Remove an empty directory, or a link; there need not be one. Nothing else is removed."""
    try:
        if path.is_symlink():
            path.unlink(missing_ok=True)
        else:
            path.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise MountError(f"{path} cannot be removed: {error.strerror}") from error

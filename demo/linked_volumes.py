"""Volumes of the demo's pods: links in place of mounts, since mounting needs root.

A link protects nothing; everything else is as with `agent.kernelcache.content.mounts.OverlayMounter`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, final

from agent.csi.volume_source import MountState
from agent.errors import MountError
from agent.kernelcache.content.mountinfo import MountEntry

if TYPE_CHECKING:
    from agent.csi.volume_source import CacheVolume


@final
class LinkedVolumes:
    """The driver's port `agent.csi.volume_source.Mounter`, and the list of what it has linked."""

    def __init__(self) -> None:
        self._targets: set[Path] = set()

    def state(self, target: Path) -> MountState:
        return MountState.PROTECTED if target in self._targets else MountState.NOT_MOUNTED

    def mount(self, volume: "CacheVolume", target: Path) -> None:
        """Replace the empty directory by a link."""
        try:
            target.rmdir()
            target.symlink_to(volume.content)
        except OSError as error:
            raise MountError(f"{target} cannot be linked: {error.strerror}") from error
        self._targets.add(target)

    def unmount(self, target: Path) -> None:
        """Remove the link."""
        self._targets.discard(target)
        target.unlink(missing_ok=True)

    def mounts(self) -> tuple[MountEntry, ...]:
        """Return the links as `agent.kernelcache.content.mountinfo.read_mounts` returns mounts."""
        return tuple(
            MountEntry(root=str(target.readlink()), mount_point=str(target))
            for target in sorted(self._targets)
        )

"""What the CSI driver needs of the node: the content of caches, and mounts; two ports and their values."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from agent.csi.volume_request import PublishVolume


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheVolume:
    """The content of a cache on the node's disk."""

    content: "Path"
    """Directory to mount."""
    digest: str
    has_shared_objects: bool
    """Then it is mounted without noexec: a shared object is mapped executable."""


class Absence(Enum):
    """Why there is nothing to mount, by what has to happen first."""

    NO_SUCH_CACHE = auto()
    NOT_READY = auto()
    """It is not pulled, verified or extracted yet, or that failed and is tried again."""
    DOES_NOT_FIT = auto()
    """No device of the node can use it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NotThere:
    """There is nothing to mount; the reason is a clause that follows the cache's name and a colon."""

    absence: Absence
    reason: str


class VolumeSource(Protocol):
    """The node's store of caches."""

    def source_of(
        self, volume: "PublishVolume"
    ) -> "AbstractAsyncContextManager[CacheVolume | NotThere]":
        """Look the volume's cache up; inside the context its content is not removed.

        After it, the mount is what refers to the content. A store that cannot be read is a reason, not an exception.
        """
        ...

    def released(self, target: "Path") -> None:
        """Note that nothing is mounted at a target any more; nothing may have been."""
        ...


class MountState(Enum):
    """What is mounted at a path."""

    NOT_MOUNTED = auto()
    PROTECTED = auto()
    """Read-only, nosuid and nodev."""
    EXPOSED = auto()
    """Without one of these, such as a mount of another program."""


class Mounter(Protocol):
    """Mounts of this node; every method blocks, and is called in a thread."""

    def state(self, target: "Path") -> MountState:
        """Return what is mounted at exactly this path, of which no component is a link."""
        ...

    def mount(self, volume: CacheVolume, target: "Path") -> None:
        """Mount the content at an existing empty directory, protected; noexec where it has no shared objects.

        Raises:
            MountError: it cannot be mounted; nothing is mounted then.
        """
        ...

    def unmount(self, target: "Path") -> None:
        """Unmount the uppermost mount.

        Raises:
            MountError: it is still mounted.
        """
        ...

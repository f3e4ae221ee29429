"""Which volumes of the node's pods use which content: rebuilt at every start, and never less than the truth.

A mount is the reference: whatever ended in between, a content that is mounted in a pod is found in
`/proc/self/mountinfo`. kubelet's `vol_data.json` beside it says the volume's id. A mount whose file is missing or
unreadable counts all the same. A volume without a mount uses nothing: kubelet publishes it again, as after a restart of
the node.

In the process itself a content is held before it is mounted, and being removed before it is gone; each refuses the
other. These methods are plain and do not wait: no mount comes between the look and the removal.
"""

from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, final

import msgspec

from agent.kernelcache.content.errors import VolumesUnknownError
from agent.kernelcache.content.store_layout import CONTENT, FILES, digest_of_directory
from api.names import PodUid

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from agent.kernelcache.content.mountinfo import MountEntry
    from api.image_reference import Digest

CSI_VOLUMES: Final = "kubernetes.io~csi"
VOLUME_DATA: Final = "vol_data.json"
_VOLUMES: Final = "volumes"
_MOUNT: Final = "mount"
_MOST_BYTES: Final = 64 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeReference:
    """A volume of a pod that uses a content."""

    target: str
    """Where it is mounted."""
    digest: "Digest"
    pod_uid: PodUid | None = None
    """None for a mount outside of kubelet's directory of pods."""
    volume_id: str | None = None
    """CSI's; None where kubelet's file does not say it."""


@final
class _VolumeData(msgspec.Struct, rename={"volume_handle": "volumeHandle"}):
    """What is read of kubelet's `vol_data.json`."""

    volume_handle: str = ""


@final
class References:
    """The volumes that use contents, of one process."""

    def __init__(self, found: "Iterable[VolumeReference]" = ()) -> None:
        """`found` is what `find_references` has found."""
        self._by_target: dict[str, set[VolumeReference]] = {}
        # target -> its references: several where one mount lies on another
        self._removing: set[Digest] = set()
        for item in found:
            self._by_target.setdefault(item.target, set()).add(item)

    def hold(self, reference: VolumeReference) -> bool:
        """Add a volume before it is mounted; return False where its content is being removed."""
        if reference.digest in self._removing:
            return False
        self._by_target.setdefault(reference.target, set()).add(reference)
        return True

    def release(self, target: str) -> None:
        """Drop what a target uses, at which nothing is mounted any more; there may be nothing."""
        self._by_target.pop(target, None)

    def reconcile(
        self, found: "Iterable[VolumeReference]", under_way: "Container[str]" = ()
    ) -> None:
        """Take over what `find_references` has found; targets of calls under way keep what they hold besides."""
        held = {target: ones for target, ones in self._by_target.items() if target in under_way}
        self._by_target = {target: set(ones) for target, ones in held.items()}
        for item in found:
            self._by_target.setdefault(item.target, set()).add(item)

    def all(self) -> "tuple[VolumeReference, ...]":
        """Return all volumes, in order."""
        return tuple(sorted(self._all(), key=attrgetter("target", "digest")))

    def of(self, digest: "Digest") -> tuple[VolumeReference, ...]:
        """Return the volumes that use a content, in order."""
        return tuple(
            sorted(
                (item for item in self._all() if item.digest == digest), key=attrgetter("target")
            )
        )

    def digests(self) -> "frozenset[Digest]":
        """Return the contents that are in use."""
        return frozenset(item.digest for item in self._all())

    def _all(self) -> "Iterator[VolumeReference]":
        return chain.from_iterable(self._by_target.values())

    def begin_removal(self, digest: "Digest") -> bool:
        """Refuse further volumes of a content; return False where one uses it."""
        if digest in self.digests():
            return False
        self._removing.add(digest)
        return True

    def end_removal(self, digest: "Digest") -> None:
        """Allow volumes of it again: it was removed, or could not be."""
        self._removing.discard(digest)


def find_references(mounts: "Iterable[MountEntry]", pods: Path) -> tuple[VolumeReference, ...]:
    """Return the volumes whose content is mounted, whatever else is known about them.

    A mount is known by the directory that is mounted, `…/content/sha256-<hex>/files`, so that a store that was moved
    or lost does not hide one. Mounts inside the store itself count as well. kubelet's directory may be a link.
    A volume of a pod is seen once more where the node's root is mounted, as it is in the agent's own pod; that
    mount goes with the volume's own, and is left out.

    Raises:
        VolumesUnknownError: kubelet's directory of pods exists, and cannot be read.
    """
    root = _resolved(pods)
    found = ((mount.mount_point, digest_of_content(mount.root)) for mount in mounts)
    all_ = [_reference(target, digest, root) for target, digest in found if digest is not None]
    of_pods = {(item.target, item.digest) for item in all_ if item.pod_uid is not None}
    return tuple(
        item for item in all_ if item.pod_uid is not None or not _is_seen_again(item, of_pods)
    )


def _is_seen_again(reference: VolumeReference, of_pods: "AbstractSet[tuple[str, Digest]]") -> bool:
    path = PurePosixPath(reference.target)
    below = ("/" + "/".join(path.parts[at:]) for at in range(2, len(path.parts)))
    return any((target, reference.digest) in of_pods for target in below)


def digest_of_content(path: str) -> "Digest | None":
    """Return the digest of the content whose files a path is, as it ends."""
    parts = PurePosixPath(path).parts[-3:]
    if len(parts) < len((CONTENT, "", FILES)) or parts[0] != CONTENT or parts[2] != FILES:
        return None
    return digest_of_directory(parts[1])


def _resolved(pods: Path) -> Path:
    try:
        return pods.resolve(strict=True)
    except FileNotFoundError:
        # No pod has run here yet, or kubelet's directory is elsewhere: mounts count without it.
        return pods
    except (OSError, RuntimeError) as error:
        # A circle of links is a RuntimeError up to Python 3.12.
        raise VolumesUnknownError(f"{pods} cannot be read: {error}") from error


def _reference(target: str, digest: "Digest", pods: Path) -> VolumeReference:
    path = Path(target)
    # <pods>/<uid>/volumes/kubernetes.io~csi/<volume>/mount
    parts = path.relative_to(pods).parts if path.is_relative_to(pods) else ()
    match parts:
        case (uid, str(volumes), str(plugin), _, str(mount)) if (volumes, plugin, mount) == (
            _VOLUMES,
            CSI_VOLUMES,
            _MOUNT,
        ):
            return VolumeReference(
                target=target,
                digest=digest,
                pod_uid=PodUid(uid),
                volume_id=_volume_id(path.parent / VOLUME_DATA),
            )
        case _:
            return VolumeReference(target=target, digest=digest)


def _volume_id(path: Path) -> str | None:
    """Return the volume's id; None where the file is missing, cut or of another form."""
    try:
        with path.open("rb") as file:
            data = msgspec.json.decode(file.read(_MOST_BYTES), type=_VolumeData)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return data.volume_handle or None

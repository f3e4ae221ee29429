"""What the node really has: mounts by the kernel's list, and contents by a walk of the store. None of our code."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tests.cluster.node.environment import paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

STORE: Final = paths.STATE / "gkm"
PODS: Final = paths.KUBELET_ROOT / "pods"
_MOUNTED: Final = re.compile(r"/content/sha256-([0-9a-f]{64})/files\b")
_TARGET: Final = re.compile(
    re.escape(str(PODS)) + r"/([^/]+)/volumes/kubernetes\.io~csi/([^/]+)/mount$"
)


@final
@dataclass(frozen=True, slots=True, order=True)
class MountedVolume:
    """A cache that is mounted for a pod."""

    pod_uid: str
    volume: str
    digest: str


def mounted_volumes() -> list[MountedVolume]:
    """Return the caches that are mounted, one for each mount: two on one target are two."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        target = _TARGET.match(line.split(" ")[4])
        content = _MOUNTED.search(line)
        if target is not None:
            assert content is not None, f"a volume without a content of the store: {line}"
            found.append(MountedVolume(target[1], target[2], f"sha256:{content[1]}"))
    return sorted(found)


def mount_options(pod_uid: str) -> list[set[str]]:
    """Return the options of the pod's mounts."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    fields = [line.split(" ") for line in lines]
    return [
        set(field[5].split(","))
        for field in fields
        if (target := _TARGET.match(field[4])) is not None and target[1] == pod_uid
    ]


def stored_digests(store: Path = STORE) -> set[str]:
    """Return the contents of the store, all of whose files are there."""
    return {path.name.replace("-", ":", 1) for path in (store / "content").glob("sha256-*")}


def unfinished(store: Path = STORE) -> list[str]:
    """Return what the store has of extractions and removals that are under way, or were not finished."""
    return sorted(path.name for path in (store / "tmp").iterdir())


def disagreements(
    uses: "Counter[tuple[str, str]]",
    *,
    mounted: "Iterable[MountedVolume]",
    stored: "Collection[str]",
) -> list[str]:
    """Return where mounts, store and the pods that are alive differ.

    Args:
        uses: (uid, digest) of every volume of a pod that is alive.
        mounted: what is mounted.
        stored: the digests in the store.
    """
    found = Counter((item.pod_uid, item.digest) for item in mounted)
    return [
        *(f"mounted, and no pod has it: {element}" for element in (found - uses).elements()),
        *(
            f"a pod has it, and it is not mounted: {element}"
            for element in (uses - found).elements()
        ),
        *(f"mounted, and not in the store: {item}" for item in found if item[1] not in stored),
    ]

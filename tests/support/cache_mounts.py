"""Real mounts of a content, for a process in a mount namespace of its own: `python -m tests.support.cache_mounts CASE DIR`.

Each case is a function that asserts; the last line of the output is its name.
"""

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from agent.csi.volume_source import CacheVolume, MountState
from agent.errors import MountError
from agent.kernelcache.content.content_store import ContentStore, open_store
from agent.kernelcache.content.errors import StoreError, StoreFault
from agent.kernelcache.content.layer_limits import ExtractionLimits
from agent.kernelcache.content.mountinfo import read_mounts
from agent.kernelcache.content.mounts import OverlayMounter
from agent.kernelcache.content.references import VolumeReference, find_references
from api.image_reference import Digest
from kernelcache.image_format import CacheType
from tests.support.cache_layers import (
    PREFIX,
    LayerSource,
    SetClock,
    a_file,
    a_layer,
    a_triton_layer,
)

DIGEST = Digest("sha256:" + "a" * 64)
OTHER = Digest("sha256:" + "b" * 64)
MOUNTER = OverlayMounter()


def a_volume(directory: Path, layer: bytes | None = None) -> tuple[ContentStore, CacheVolume]:
    store = open_store(directory / "caches", SetClock())
    source = LayerSource(layer or a_triton_layer())
    content = asyncio.run(store.add(DIGEST, CacheType.TRITON, source, limits=ExtractionLimits()))
    return store, CacheVolume(
        content=store.files_of(DIGEST),
        digest=DIGEST,
        has_shared_objects=content.has_shared_objects,
    )


def a_target(directory: Path, pod: str = "pod", name: str = "cache") -> Path:
    path = directory / "pods" / pod / "volumes" / "kubernetes.io~csi" / name / "mount"
    path.mkdir(parents=True)
    return path


def references(directory: Path) -> list[VolumeReference]:
    """Return those of the directory; a node's tests that run beside this have others."""
    found = find_references(read_mounts(), directory / "pods")
    return [item for item in found if item.target.startswith(f"{directory}/")]


def options_at(target: Path) -> list[set[str]]:
    """Return the options of each mount at the target, as the kernel lists them."""
    lines = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [set(line[5].split(",")) for line in lines if line[4] == str(target)]


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except MountError as error:
        return str(error)
    raise AssertionError("it was not refused")


def os_error(call: Callable[[], object]) -> int | None:
    try:
        call()
    except OSError as error:
        return error.errno
    raise AssertionError("it was not refused")


def case_protected(directory: Path) -> None:
    _, volume = a_volume(directory)
    target = a_target(directory)
    assert MOUNTER.state(target) is MountState.NOT_MOUNTED
    MOUNTER.mount(volume, target)
    assert MOUNTER.state(target) is MountState.PROTECTED
    (options,) = options_at(target)
    assert {"ro", "nosuid", "nodev", "noexec"} <= options
    kernel = next(target.rglob("*.ptx"))
    assert kernel.read_bytes() == b"kernel"
    assert os_error(lambda: kernel.write_bytes(b"poison")) == errno.EROFS
    assert os_error(kernel.unlink) == errno.EROFS
    assert os_error((target / "new").mkdir) == errno.EROFS
    assert os_error(lambda: kernel.chmod(0o777)) == errno.EROFS
    MOUNTER.unmount(target)
    assert MOUNTER.state(target) is MountState.NOT_MOUNTED
    assert options_at(target) == []
    assert "unmounted: Invalid argument" in refused(lambda: MOUNTER.unmount(target))


def case_shared_objects(directory: Path) -> None:
    _, volume = a_volume(directory, a_layer(a_file(f"{PREFIX}H/__triton_launcher.so")))
    target = a_target(directory)
    MOUNTER.mount(volume, target)
    (options,) = options_at(target)
    assert {"ro", "nosuid", "nodev"} <= options
    assert "noexec" not in options
    assert MOUNTER.state(target) is MountState.PROTECTED


def case_exposed(directory: Path) -> None:
    _, volume = a_volume(directory)
    target = a_target(directory)
    subprocess.run(["mount", "--bind", volume.content, target], check=True)
    assert MOUNTER.state(target) is MountState.EXPOSED
    MOUNTER.unmount(target)
    MOUNTER.mount(volume, target)
    assert MOUNTER.state(target) is MountState.PROTECTED


def case_flags_taken_off(directory: Path) -> None:
    """C4: as runc from 1.2 on mounts a volume for a container that does not call it read-only."""
    _, volume = a_volume(directory)
    target = a_target(directory)
    MOUNTER.mount(volume, target)
    inside = directory / "container"
    inside.mkdir()
    subprocess.run(["mount", "--bind", target, inside], check=True)
    subprocess.run(["mount", "-o", "remount,bind,rw", inside], check=True)
    (options,) = options_at(inside)
    assert "ro" not in options
    kernel = next(inside.rglob("*.ptx"))
    assert os_error(lambda: kernel.write_bytes(b"poison")) == errno.EROFS
    assert os_error(lambda: kernel.chmod(0o777)) == errno.EROFS
    assert os_error((inside / "new").mkdir) == errno.EROFS
    subprocess.run(["umount", inside], check=True)


def case_names_with_separators(directory: Path) -> None:
    """The separators of an overlay's options, and of mountinfo."""
    for name in ("a,b", "a:b", "a\\b", "a b"):
        below = directory / name
        below.mkdir()
        _, volume = a_volume(below)
        target = a_target(below)
        MOUNTER.mount(volume, target)
        assert next(target.rglob("*.ptx")).read_bytes() == b"kernel"
        found = references(below)
        assert [item.digest for item in found if item.target == str(target)] == [DIGEST], name
        MOUNTER.unmount(target)


def case_links(directory: Path) -> None:
    _, volume = a_volume(directory)
    victim = directory / "victim"
    victim.mkdir()
    target = a_target(directory)
    target.rmdir()
    target.symlink_to(victim)
    for call in (lambda: MOUNTER.mount(volume, target), lambda: MOUNTER.state(target)):
        assert f"{target} cannot be " in refused(call)
        assert "a part of it is a symbolic link" in refused(call)
    subprocess.run(["mount", "--bind", volume.content, victim], check=True)
    refused(lambda: MOUNTER.unmount(target))
    assert len(options_at(victim)) == 1
    subprocess.run(["umount", victim], check=True)
    target.unlink()
    (victim / "mount").mkdir()
    target.parent.rmdir()
    target.parent.symlink_to(victim)
    assert "symbolic link" in refused(lambda: MOUNTER.mount(volume, target))
    assert options_at(victim / "mount") == options_at(target) == []


def case_missing(directory: Path) -> None:
    _, volume = a_volume(directory)
    target = a_target(directory)
    target.rmdir()
    assert MOUNTER.state(target) is MountState.NOT_MOUNTED
    assert "No such file or directory" in refused(lambda: MOUNTER.mount(volume, target))
    target.write_text("")
    assert "no directory" in refused(lambda: MOUNTER.mount(volume, target))


def case_busy(directory: Path) -> None:
    _, volume = a_volume(directory)
    target = a_target(directory)
    MOUNTER.mount(volume, target)
    inside = os.open(target, os.O_RDONLY)
    text = refused(lambda: MOUNTER.unmount(target))
    assert text.endswith("Device or resource busy; a process still uses it; it is tried again")
    assert MOUNTER.state(target) is MountState.PROTECTED
    assert [reference.digest for reference in references(directory)] == [DIGEST]
    os.close(inside)
    MOUNTER.unmount(target)


def case_many_mounts_of_one_content(directory: Path) -> None:
    _, volume = a_volume(directory)
    targets = [a_target(directory, f"pod{number}") for number in range(20)]
    for item in targets:
        MOUNTER.mount(volume, item)
        (item.parent / "vol_data.json").write_text(
            json.dumps({"driverName": "csi.gkm.io", "volumeHandle": f"csi-{item.parts[-5]}"})
        )
    found = references(directory)
    assert {(item.target, item.digest) for item in found} == {
        (str(item), DIGEST) for item in targets
    }
    assert {(item.pod_uid, item.volume_id) for item in found} == {
        (f"pod{number}", f"csi-pod{number}") for number in range(20)
    }
    MOUNTER.unmount(targets[0])
    assert len(references(directory)) == 19


def case_removed_content_stays_a_reference(directory: Path) -> None:
    store, volume = a_volume(directory)
    target = a_target(directory)
    MOUNTER.mount(volume, target)
    asyncio.run(store.remove(DIGEST))
    assert [reference.digest for reference in references(directory)] == [DIGEST]


def case_store_on_a_full_disk(directory: Path) -> None:
    root = directory / "disk"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", root], check=True)
    store = open_store(root, SetClock())
    layer = LayerSource(a_triton_layer(data=os.urandom(300_000)))
    error = store_refusal(store, layer)
    assert error.fault is StoreFault.FULL
    assert "kept for others; free space or inodes there" in str(error)
    assert [path.name for path in (root / "tmp").iterdir()] == []
    assert [path.name for path in (root / "content").iterdir()] == []
    layer = LayerSource(a_triton_layer())
    asyncio.run(store.add(DIGEST, CacheType.TRITON, layer, limits=ExtractionLimits()))


def case_read_only_store(directory: Path) -> None:
    root = directory / "disk"
    root.mkdir()
    open_store(root, SetClock()).close()
    subprocess.run(["mount", "--bind", root, root], check=True)
    store = open_store(root, SetClock())
    layer = LayerSource(a_triton_layer())
    asyncio.run(store.add(DIGEST, CacheType.TRITON, layer, limits=ExtractionLimits()))
    subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
    error = store_refusal(store, layer, OTHER)
    assert error.fault is StoreFault.READ_ONLY
    assert str(error) == (
        f"the store of kernel caches {root} cannot be used: Read-only file system; mount it writable"
    )
    store.close()
    again = open_store(root, SetClock())
    assert again.contents.keys() == {DIGEST}
    assert again.files_of(DIGEST).is_dir()


def case_mounted_over_store(directory: Path) -> None:
    root = directory / "disk"
    store = open_store(root, SetClock())
    subprocess.run(["mount", "-t", "tmpfs", "none", root], check=True)
    error = store_refusal(store, LayerSource(a_triton_layer()))
    assert error.fault is StoreFault.LOST
    assert "was replaced or mounted over; restart the agent" in str(error)


def store_refusal(store: ContentStore, layer: LayerSource, digest: Digest = DIGEST) -> StoreError:
    try:
        asyncio.run(store.add(digest, CacheType.TRITON, layer, limits=ExtractionLimits()))
    except StoreError as error:
        return error
    raise AssertionError("it was not refused")


CASES = {
    name.removeprefix("case_"): case
    for name, case in list(globals().items())
    if name.startswith("case_")
}

if __name__ == "__main__":
    CASES[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.write(f"{sys.argv[1]}\n")

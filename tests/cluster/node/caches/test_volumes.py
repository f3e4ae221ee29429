"""What a container sees of a cache, and that it cannot change it (C4)."""

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulator.registry.triton_cache import write_triton_cache
from tests.cluster.node.caches.caches import volume_of
from tests.cluster.node.caches.node_oracle import PODS, STORE, mount_options

if TYPE_CHECKING:
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches

CHANGES = (
    "echo poison > /cache/new",
    "echo poison >> /cache/{file}",
    "chmod 777 /cache/{file}",
    "chown 1000 /cache/{file}",
    "mv /cache/{file} /cache/other",
    "rm -rf /cache/{directory}",
    "mkdir /cache/more",
    "ln -s /etc/passwd /cache/link",
    "mount -o remount,rw /cache",
    "mount -o remount,bind,rw /cache",
    "umount /cache",
)


def stored_files(image: "CacheImage") -> dict[str, tuple[int, bytes]]:
    """Return path -> mode and content of all files of the image in the store."""
    content = STORE / "content" / image.digest.replace(":", "-") / "files"
    return {
        str(path.relative_to(content)): (path.stat().st_mode, path.read_bytes())
        for path in content.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("of_cluster", [False, True], ids=["GKMCache", "ClusterGKMCache"])
async def test_a_container_reads_the_cache_and_cannot_change_it(
    caches: "Caches", images: "dict[str, CacheImage]", tmp_path: Path, *, of_cluster: bool
):
    """Whether the pod asks for a read-only volume, or for a read-only mount of it, or for neither (C4)."""
    image = images["llama:1"]
    name = f"llama-{caches.namespace}" if of_cluster else "llama"
    await caches.make(name, image, of_cluster=of_cluster)
    namespace = None if of_cluster else caches.namespace
    pods = {
        "plain": caches.a_pod("plain", volume_of(name, namespace)),
        "volume": caches.a_pod("volume", volume_of(name, namespace, read_only=True)),
        "mount": caches.a_pod("mount", volume_of(name, namespace), mount_read_only=True),
    }
    for pod in pods.values():
        await caches.create(pod)

    packed = write_triton_cache(tmp_path, object_bytes=10_000)
    expected = sorted(str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file())
    file, directory = expected[0], expected[0].partition("/")[0]
    before: dict[str, tuple[int, bytes]] = {}
    for pod_name in pods:
        pod = await caches.running(pod_name)
        before = before or stored_files(image)
        found = (await caches.sh(pod_name, "cd /cache; find * -type f | sort")).split()
        assert found == expected
        assert await caches.marker_in(pod_name) == image.marker
        said = await caches.sh(
            pod_name,
            "id -u; " + "; ".join(map(attempt, CHANGES)).format(file=file, directory=directory),
        )
        assert said.split() == ["0", *["refused"] * len(CHANGES)], said
        (options,) = mount_options(pod["metadata"]["uid"])
        assert options >= {"ro", "nosuid", "nodev"}
    assert stored_files(image) == before
    assert sorted(before) == expected
    digests = dict.fromkeys(pods, image.digest)
    await caches.agrees(digests)


def attempt(change: str) -> str:
    return f"if {change} 2>/dev/null; then echo changed; else echo refused; fi"


async def test_a_runtime_that_takes_the_flags_off_the_mount_cannot_write_either(
    caches: "Caches", images: "dict[str, CacheImage]"
):
    """C4: runc from 1.2 on mounts what the pod does not call read-only without any flag of the volume's mount.

    What it does then is done here by hand, since Debian's is older.
    """
    await caches.make("llama", images["llama:1"])
    pod = await caches.run(caches.pod_of("reads", "llama"))
    (target,) = (PODS / pod["metadata"]["uid"] / "volumes" / "kubernetes.io~csi").glob("*/mount")
    script = f"""
set -e
mount --bind {target} /mnt
mount -o remount,bind,rw /mnt
grep ' /mnt rw,' /proc/self/mountinfo
! touch /mnt/new
! chmod 777 /mnt/*
"""
    done = await asyncio.to_thread(
        subprocess.run,
        ["unshare", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("Read-only file system") >= 2, done.stderr

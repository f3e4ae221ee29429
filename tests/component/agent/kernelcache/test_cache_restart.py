"""Restarts of the agent, and a quiet node: usage is what is mounted, and nothing is written that is not new."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from agent.kernelcache.content import store_layout
from api.cache_name import CacheName
from api.image_reference import Digest
from kernelcache.image_format import CacheType
from kube.resources import PODS
from tests.component.agent.kernelcache.cache_node import TEAM, CacheNode, an_image
from tests.support.csi import a_target
from tests.support.polling import until, until_async

CACHES, USED = 1_000, 300
MOUNTED = CacheName(namespace=TEAM, name="cache-0")


def store_contents(node: CacheNode, count: int) -> list[Digest]:
    """Put contents on the disk, as an earlier process extracted them."""
    root = node.folder / "caches"
    store_layout.make_directories(root)
    now = node.clock.utc_now()
    digests = [
        Digest(f"sha256:{hashlib.sha256(b'%d' % item).hexdigest()}") for item in range(count)
    ]
    for digest in digests:
        directory = store_layout.content_directory(root, digest)
        (directory / store_layout.FILES).mkdir(parents=True)
        content = store_layout.StoredContent(
            digest=digest,
            cache_type=CacheType.TRITON.value,
            size_bytes=1000,
            disk_bytes=4096,
            files=1,
            has_shared_objects=False,
            extracted_at=now,
            used_at=now,
        )
        store_layout.write_record(directory, content)
    return digests


async def add_all(node: CacheNode, digests: list[Digest]) -> None:
    for at in range(0, len(digests), 50):
        names = range(at, min(at + 50, len(digests)))
        await asyncio.gather(
            *(
                node.add_cache(digests[item], CacheName(namespace=TEAM, name=f"cache-{item}"))
                for item in names
            )
        )


async def mount_some(node: CacheNode, count: int) -> list[str]:
    uids = [
        await node.add_pod(f"pod-{item}", CacheName(namespace=TEAM, name=f"cache-{item}"))
        for item in range(count)
    ]
    for number, uid in enumerate(uids):
        name = CacheName(namespace=TEAM, name=f"cache-{number}")
        await node.mounted(uid, name, pod=f"{TEAM}/pod-{number}")
    return uids


async def all_visible(node: CacheNode, caches: int, used: int) -> bool:
    found = await node.object()
    if found is None or len(found.status.caches or {}) != caches:
        return False
    counts = found.status.counts
    return (counts.nodes_in_use, counts.pods_running) == (used, used)


async def test_an_agent_that_restarts_with_a_thousand_caches_knows_their_use_and_writes_nothing(
    node: CacheNode,
) -> None:
    """C7: usage comes from the mounts; one reading of them, and one of the store."""
    digests = store_contents(node, CACHES)
    await add_all(node, digests)
    async with node.running():
        await mount_some(node, USED)
        await until_async(lambda: all_visible(node, CACHES, USED))
    node.api.requests.clear()
    reads = 0
    mounts = node.mounts

    def counted() -> object:
        nonlocal reads
        reads += 1
        return mounts()

    node.mounts = counted  # type: ignore[method-assign,assignment]
    async with node.running():
        await until(lambda: node.role.reconciler.plan is not None)
        uses = node.role.uses.uses({})
        assert len(uses) == USED
        assert {(use.cache, use.pod_name) for use in uses} == {
            (CacheName(namespace=TEAM, name=f"cache-{item}"), f"pod-{item}") for item in range(USED)
        }
        uid = await node.add_pod("late", MOUNTED)
        node.api.requests.clear()
        await node.mounted(uid, MOUNTED, pod=f"{TEAM}/late")
        await until_async(lambda: _has_pods(node, 2))
    assert reads == 1
    assert node.registry.seen == []
    # The late pod alone is news.
    assert [write.path.rsplit("/", 1)[1] for write in node.api.requests.writes()] == ["status"]


async def _has_pods(node: CacheNode, count: int) -> bool:
    found = await node.current(_digest(0), MOUNTED)
    return found is not None and len(found.pods or ()) == count


def _digest(number: int) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(b'%d' % number).hexdigest()}")


@pytest.mark.looptime(noop_cycles=10)
async def test_a_quiet_node_with_a_hundred_caches_writes_nothing_in_ten_minutes(
    node: CacheNode,
) -> None:
    digests = store_contents(node, 100)
    await add_all(node, digests)
    async with node.running():
        await mount_some(node, 50)
        await until_async(lambda: all_visible(node, 100, 50))
        await asyncio.sleep(5)
        node.api.requests.clear()
        files = _versions(node.folder / "caches")
        await asyncio.sleep(600)
        assert node.api.requests.writes() == []
        assert _versions(node.folder / "caches") == files
        assert node.registry.seen == []


def _versions(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


async def test_a_pod_that_ended_while_the_agent_was_away_is_no_use(node: CacheNode) -> None:
    """C7."""
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        uid = await node.add_pod("worker")
        await node.mounted(uid)
        await node.until_state("Running", digest)
    node.mounter.unmount(node.target(uid))
    await node.client.delete(PODS, "worker", namespace=TEAM, grace_period_s=0)
    async with node.running():
        await node.until_state("Extracted", digest)


async def test_a_mount_of_a_pod_that_the_api_server_has_forgotten_is_a_use_of_its_cache(
    node: CacheNode,
) -> None:
    """C7: of a pod that is gone, the node's object says which cache it mounts."""
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        uid = await node.add_pod("worker")
        await node.mounted(uid)
        await node.until_state("Running", digest)
    await node.client.delete(PODS, "worker", namespace=TEAM, grace_period_s=0)
    await node.delete_cache()
    async with node.running():
        await until(lambda: node.role.reconciler.plan is not None)
        node.pass_time(400)
        await until_async(lambda: _is_deleting(node))
        assert node.contents() == {digest}
        node.unpublish(uid)
        await node.until_not_visible()
        node.pass_time(400)
        await until(lambda: node.contents() == set())


async def _is_deleting(node: CacheNode) -> bool:
    found = await node.object()
    return found is not None and found.status.counts.pods_deleting == 1


async def test_a_foreign_mount_of_a_content_keeps_it_on_the_disk(node: CacheNode) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        uid = await node.add_pod("worker")
        volume = await node.mounted(uid)
        node.unpublish(uid)
        foreign = node.folder / "elsewhere"
        foreign.mkdir()
        node.mounter.mount(volume, foreign)
        await node.role.uses.read()
        await node.delete_cache()
        await node.client.delete(PODS, "worker", namespace=TEAM, grace_period_s=0)
        await node.until_not_visible()
        node.pass_time(400)
        await asyncio.sleep(0.3)
        assert node.contents() == {digest}
        node.mounter.unmount(foreign)
        await node.role.uses.read()
        await until(lambda: bool(node.role.reconciler.plan and node.role.reconciler.plan.next_at))
        node.pass_time(400)
        await until(lambda: node.contents() == set())


async def test_mounts_through_a_link_to_kubelets_directory_are_one_use(node: CacheNode) -> None:
    real = node.folder / "real"
    (node.folder / "kubelet").rename(real)
    (node.folder / "kubelet").symlink_to(real)
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        uid = await node.add_pod("worker")
        volume = await node.mounted(uid)
        # Mounts are listed by where the link leads.
        node.mounter.mounted[a_target(real / "pods", uid)] = [volume]
        del node.mounter.mounted[node.target(uid)]
        await node.role.uses.read()
        (one,) = node.role.uses.references.all()
        assert one.target == str(a_target(real / "pods", uid))
        del node.mounter.mounted[a_target(real / "pods", uid)]
        node.source.released(node.target(uid))
        assert node.role.uses.references.all() == ()

"""Caches that are deleted, pods that leave, a node that is drained: nothing goes before its last user, and all goes then."""

from typing import TYPE_CHECKING

from tests.cluster.environment import pods, polling
from tests.cluster.node.caches.caches import Caches
from tests.cluster.node.caches.node_oracle import mounted_volumes, stored_digests
from tests.cluster.system.installation import GKM

if TYPE_CHECKING:
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.caches.cache_images import CacheImage


async def nothing_is_left(caches: Caches) -> None:
    """Wait until mounts, contents and the node's objects of the namespace are gone."""
    path = f"{GKM}/namespaces/{caches.namespace}/gkmcachenodes"

    async def is_nothing() -> bool:
        assert mounted_volumes() == []
        assert stored_digests() == set()
        assert (await caches.api.get(path))["items"] == []
        return True

    await polling.eventually(is_nothing, what="the node has nothing of the namespace's caches")


async def test_a_cache_in_use_is_deleted_when_its_last_pod_has_ended(
    caches: Caches, images: "dict[str, CacheImage]", kubectl: "Kubectl"
):
    await caches.make("llama", images["llama:1"])
    await caches.run(caches.pod_of("one", "llama"))
    await caches.run(caches.pod_of("two", "llama"))
    await caches.shows("llama", "Running", podRunningCnt=2)
    await caches.delete("llama")
    await caches.shows("llama", "Running", podRunningCnt=0, podDeletingCnt=2)
    listed = (await kubectl("get", "gkmcache", "llama", "-n", caches.namespace)).stdout
    assert dict(zip(*map(str.split, listed.splitlines()), strict=True))["POD-DELETING"] == "2"
    # No new pod gets it, and it stays while one has it.
    await caches.create(caches.pod_of("late", "llama"))
    event = await caches.recorded("late", "MountVolume.SetUp failed")
    assert f"GKMCache {caches.namespace}/llama: " in event
    await caches.end("one")
    await caches.shows("llama", "Running", podDeletingCnt=1)
    assert await caches.marker_in("two") == images["llama:1"].marker

    await caches.end("two")
    await caches.gone("llama")
    await nothing_is_left(caches)


async def test_a_node_is_drained(
    caches: Caches, images: "dict[str, CacheImage]", kubectl: "Kubectl"
):
    """The references go with the pods, and then a cache can be deleted."""
    await caches.make("llama", images["llama:1"])
    await caches.run(caches.pod_of("leaves", "llama"))
    node = caches.node.name
    try:
        await kubectl("drain", node, "--force", "--pod-selector=!never", "--ignore-daemonsets")
        await pods.wait_for_pod_gone(caches.api, caches.namespace, "leaves")
        await caches.agrees({})
        await caches.shows("llama", "Extracted", podRunningCnt=0, nodeNotInUseCnt=1)
        await caches.delete("llama")
        await caches.gone("llama")
        await nothing_is_left(caches)
    finally:
        await kubectl("uncordon", node)


async def test_a_namespace_ends_with_its_caches_and_pods(
    caches: Caches, images: "dict[str, CacheImage]"
):
    """Finalizers of caches and of the node's object do not hold it for ever."""
    name = f"{caches.namespace}-ends"
    await caches.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    await polling.eventually(lambda: caches.api.find(account), what=f"the account of {name}")
    inner = Caches(caches.api, name, caches.node)
    await inner.make("llama", images["llama:1"])
    await inner.run(inner.pod_of("reads", "llama"))
    await caches.api.delete(f"/api/v1/namespaces/{name}")

    async def is_gone() -> bool:
        found = await caches.api.find(f"/api/v1/namespaces/{name}")
        assert not found, f"{found.get('status')}"
        return True

    await polling.eventually(is_gone, what=f"{name} is gone")
    await nothing_is_left(caches)

"""The life of a cache on a node: cold, extracted, mounted, changed under its pods, released, removed."""

import asyncio

import pytest

from agent.csi.volume_source import Absence, CacheVolume, NotThere
from api.cache_name import CacheName
from api.names import cache_node_finalizer
from kube.resources import PODS
from telemetry.agent_metrics import CACHE_STARTS
from tests.component.agent.kernelcache.cache_node import (
    LLAMA,
    NODE,
    OTHER_TEAM,
    TEAM,
    CacheNode,
    an_image,
)
from tests.support.fake_driver import a_device
from tests.support.polling import until, until_async

CLUSTER = CacheName(namespace="", name="llama")


async def test_a_cache_is_cold_then_mounted_then_outdated_and_goes_after_its_grace(
    node: CacheNode,
) -> None:
    """G8: Outdated appears, and a new digest keeps the map of the old one."""
    first = an_image(node.registry, tag="1")
    async with node.running():
        await node.add_cache(first, warm="Demand")
        uid = await node.add_pod("worker")
        cold = CACHE_STARTS.labels("cold")._value.get()
        found = await node.publish(uid)
        assert isinstance(found, NotThere)
        volume = await node.mounted(uid)
        assert volume.digest == first
        assert CACHE_STARTS.labels("cold")._value.get() == cold + 1
        await node.until_state("Running", first)
        current = await node.current(first)
        assert current is not None
        assert [(pod.pod_namespace, pod.pod_name) for pod in current.pods or ()] == [
            (TEAM, "worker")
        ]
        assert [pod.volume_id for pod in current.pods or ()] == [f"csi-{uid}"]
        assert (current.compatible_gpus, current.incompatible_gpus) == ([0], None)
        second = an_image(node.registry, tag="2")
        await node.change_image(second, tag="2")
        await node.until_state("Outdated", first)
        other = await node.add_pod("worker-2")
        assert (await node.mounted(other)).digest == second
        await node.until_state("Running", second)
        counts = (await node.object()).status.counts  # type: ignore[union-attr]
        assert (counts.pods_running, counts.pods_outdated) == (1, 1)
        assert node.contents() == {first, second}
        await node.client.delete(PODS, "worker", namespace=TEAM, grace_period_s=0)
        node.unpublish(uid)
        await until_async(lambda: _is_hidden(node, first))
        assert node.contents() == {first, second}
        node.pass_time(301)
        await until(lambda: node.contents() == {second})
    reasons = [event.reason for event in node.events.events]
    assert reasons == ["Created", "CacheUsed", "CacheUsed", "CacheRelease"]


async def _is_hidden(node: CacheNode, digest: str) -> bool:
    return await node.current(digest) is None  # type: ignore[arg-type]


async def test_the_object_belongs_to_the_node_and_goes_with_its_last_cache(node: CacheNode) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        found = await node.object()
        assert found is not None
        assert found.metadata.label("kubernetes.io/hostname") == NODE
        assert found.metadata.finalizers == [cache_node_finalizer("llama")]
        owners = [
            (reference.kind, reference.name) for reference in found.metadata.owner_references or ()
        ]
        assert owners == [("Node", NODE)]
        assert [item.gpu_type for item in found.status.gpus or ()] == ["NVIDIA H100 80GB HBM3"]
        await node.delete_cache()
        await until_async(lambda: _has_no_object(node))
        assert "Deleting" in [event.reason for event in node.events.events]


async def _has_no_object(node: CacheNode) -> bool:
    return await node.object() is None


async def test_a_second_cache_of_the_same_digest_costs_no_pull_and_no_bytes(
    node: CacheNode,
) -> None:
    digest = an_image(node.registry)
    other = CacheName(namespace=OTHER_TEAM, name="other")
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        seen = len(node.registry.seen)
        await node.add_cache(digest, other)
        await node.until_state("Extracted", digest, other)
        assert len(node.registry.seen) == seen
        assert node.contents() == {digest}


async def test_caches_of_one_name_in_both_scopes_do_not_mix(node: CacheNode) -> None:
    mine, clusters = an_image(node.registry, tag="1"), an_image(node.registry, tag="2")
    async with node.running():
        await node.add_cache(mine, LLAMA)
        await node.add_cache(clusters, CLUSTER, tag="2")
        await node.until_state("Extracted", mine, LLAMA)
        await node.until_state("Extracted", clusters, CLUSTER)
        uid = await node.add_pod("worker", CLUSTER)
        assert (await node.mounted(uid, CLUSTER)).digest == clusters
        await node.until_state("Running", clusters, CLUSTER)
        assert (await node.state(mine, LLAMA))[0] == "Extracted"
        uid = await node.add_pod("worker-2", LLAMA)
        assert (await node.mounted(uid)).digest == mine


async def test_a_cache_that_fits_no_device_is_an_error_with_the_reason_and_is_not_pulled(
    node: CacheNode,
) -> None:
    """G5, C6."""
    digest = an_image(node.registry, arch="80")
    async with node.running():
        await node.add_cache(digest, arch="80")
        why = await node.until_state("Error", digest)
        assert why == (
            "the cache fits no device of the node: arch 80 of the cache, device has 90 (1 device)"
        )
        uid = await node.add_pod("worker")
        found = await node.publish(uid)
        assert found == NotThere(absence=Absence.DOES_NOT_FIT, reason=why)
        assert node.registry.seen == []
        node.read_driver(a_device("GPU-2", compute_capability="8.0"), a_device("GPU-3"))
        await node.mounted(uid)
        await node.until_state("Running", digest)
        current = await node.current(digest)
        assert current is not None
        assert (current.compatible_gpus, current.incompatible_gpus) == ([0], [1])
        node.read_driver(a_device("GPU-3"))
        await node.until_state("Error", digest)


async def test_a_driver_that_goes_away_changes_nothing(node: CacheNode) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        node.api.requests.clear()
        node.role.reconciler.observe_devices(None)
        node.pass_time(400)
        await asyncio.sleep(0.5)
        assert node.contents() == {digest}
        assert node.api.requests.writes() == []


async def test_a_node_without_a_driver_pulls_nothing_and_says_why(node: CacheNode) -> None:
    digest = an_image(node.registry)
    async with node.running(has_driver=False):
        await node.add_cache(digest)
        detail = await node.until_state("Pending", digest)
        assert detail == "the node's driver does not tell its devices"
        assert node.registry.seen == []


async def test_a_digest_that_is_not_proven_is_waited_for(node: CacheNode) -> None:
    """An annotation that is not the leader's digest is pulled nowhere."""
    proven, claimed = an_image(node.registry, tag="1"), an_image(node.registry, tag="2")
    async with node.running():
        await node.add_cache(proven)
        await node.until_state("Extracted", proven)
        seen = len(node.registry.seen)
        uid = await node.add_pod("worker")
        await node.annotate(claimed)
        await until_async(lambda: _waits(node, uid))
        assert len(node.registry.seen) == seen
        assert node.contents() == {proven}
        await node.resolve(claimed)
        assert (await node.mounted(uid)).digest == claimed


async def _waits(node: CacheNode, uid: str) -> bool:
    found = await node.publish(uid)
    if isinstance(found, CacheVolume):
        node.unpublish(uid)
        return False
    return found.reason == "its digest is being checked"


@pytest.mark.parametrize("name", [LLAMA, CLUSTER], ids=["GKMCache", "ClusterGKMCache"])
async def test_an_unknown_cache_is_said_to_be_unknown(node: CacheNode, name: CacheName) -> None:
    async with node.running():
        uid = await node.add_pod("worker", name)
        await until(lambda: node.role.reconciler.is_ready)
        found = await node.publish(uid, name)
        assert found == NotThere(absence=Absence.NO_SUCH_CACHE, reason="there is no such cache")


async def test_a_cache_on_demand_is_pulled_for_a_pod_before_kubelet_asks_and_goes_after_its_grace(
    node: CacheNode,
) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest, warm="Demand")
        await until(lambda: node.role.reconciler.is_ready)
        await asyncio.sleep(0.3)
        assert node.registry.seen == []
        assert await node.object() is None
        await node.add_pod("worker")
        await node.until_state("Extracted", digest)
        await node.client.delete(PODS, "worker", namespace=TEAM, grace_period_s=0)
        await until(lambda: not node.role.uses.awaited())
        node.role.reconciler.trigger()
        await until(lambda: bool(node.role.reconciler.plan and node.role.reconciler.plan.next_at))
        node.pass_time(301)
        await until(lambda: node.contents() == set())
        await node.until_not_visible()


async def test_a_deleted_cache_that_pods_use_stays_until_they_end(node: CacheNode) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        uid = await node.add_pod("worker")
        await node.mounted(uid)
        await node.until_state("Running", digest)
        await node.delete_cache()
        await until_async(lambda: _counts_deleting(node))
        node.pass_time(400)
        await asyncio.sleep(0.3)
        assert node.contents() == {digest}
        node.unpublish(uid)
        await until_async(lambda: _has_no_object(node))
        node.pass_time(301)
        await until(lambda: node.contents() == set())


async def _counts_deleting(node: CacheNode) -> bool:
    found = await node.object()
    return found is not None and found.status.counts.pods_deleting == 1

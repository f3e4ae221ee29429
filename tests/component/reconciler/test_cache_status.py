"""Status and finalizers of kernel caches, by what admission signed and what nodes report."""

from collections.abc import AsyncIterator

import pytest

from api.cache_name import CacheName
from api.image_reference import Digest
from api.kinds.gkmcache import CacheConditionType, CacheCounts, GKMCacheStatus, PoolWarmth
from api.names import CACHE_FINALIZER, CLUSTER_CACHE_FINALIZER, NodeName
from kernelcache.signatures.mutation import MutationKeys
from kernelcache.warm_policy import keeps_warm
from reconciler.kernelcache.cache_status import CHECK_S, DOUBTED_S, SIGN_AGAIN_S
from tests.component.reconciler.cache_world import (
    LLAMA,
    NEXT_KEYS,
    SHARED,
    CacheWorld,
    a_cache_world,
)
from tests.support.kernel_caches import D1, D2, IMAGE, a_digest

pytestmark = pytest.mark.looptime

EXTRACTED, RUNNING, OUTDATED, ERROR = (
    CacheConditionType.EXTRACTED,
    CacheConditionType.RUNNING,
    CacheConditionType.OUTDATED,
    CacheConditionType.ERROR,
)
QWEN = CacheName(namespace="team", name="qwen")


@pytest.fixture
async def world() -> AsyncIterator[CacheWorld]:
    async with a_cache_world() as found:
        await found.add_node("a")
        yield found


async def stable(world: CacheWorld, name: CacheName = LLAMA) -> GKMCacheStatus:
    await world.until_stable()
    return (await world.cache(name)).status


def state_of(status: GKMCacheStatus) -> tuple[str, str]:
    (current,) = status.conditions or []
    assert (current.reason, current.status) == (current.type, "True")
    return current.type, current.message


async def test_a_proven_cache_gets_its_finalizer_and_then_its_digest(world: CacheWorld):
    await world.add_cache(digest=D1)
    await world.add_cache(SHARED, digest=D2)
    await world.observe()
    world.api.requests.clear()
    await world.reconcile()
    assert (await world.cache()).metadata.finalizers == [CACHE_FINALIZER]
    assert (await world.cache()).status == GKMCacheStatus()
    status = await stable(world)
    assert (status.resolved_digest, status.image) == (D1, IMAGE)
    assert state_of(status) == ("Pending", "Not yet complete")
    shared = await world.cache(SHARED)
    assert (shared.metadata.finalizers, shared.status.resolved_digest) == (
        [CLUSTER_CACHE_FINALIZER],
        D2,
    )
    assert world.process.stores.kernel_caches.resolved().keys() == {LLAMA, SHARED}
    assert world.events() == [("Normal", "GPUKernelCacheResolved")] * 2


@pytest.mark.parametrize("annotation", ["resolvedDigest", "cacheImage", "mutationSig"])
async def test_a_missing_annotation_has_a_condition(world: CacheWorld, annotation: str):
    """G6: with GKM, a missing digest is a ToDo."""
    world.admission_keys = None
    await world.add_cache(digest=D1)
    await world.annotate({annotation: None})
    await world.until_stable()
    status = await stable(world)
    kind, message = state_of(status)
    assert (kind, status.resolved_digest, status.image) == ("Error", "", None)
    assert f"annotation gkm.io/{annotation} is missing" in message
    assert world.process.stores.kernel_caches.resolved() == {}
    assert world.events() == [("Warning", "GPUKernelCacheFailed")]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"resolvedDigest": D2}, id="W2, another digest"),
        pytest.param({"mutationSig": "AAAA"}, id="W5, a made-up signature"),
        pytest.param({"cacheImage": '{"type":"triton","targets":[],"layerBytes":1}'}, id="facts"),
    ],
)
async def test_annotations_that_prove_nothing_take_the_digest_away_in_the_end(
    world: CacheWorld, change: dict[str, str | None]
):
    await world.add_cache(digest=D1)
    await stable(world)
    world.admission_keys = None
    await world.annotate(change)
    # Nodes pull what annotation and status agree on, so that keeping it for the time of a rotation harms nothing.
    assert (await stable(world)).resolved_digest == D1
    world.time.seconds += DOUBTED_S
    status = await stable(world)
    assert (state_of(status)[0], status.resolved_digest) == ("Error", "")


async def test_admission_is_asked_to_sign_what_is_not_proven(world: CacheWorld):
    """A cache that was there before this control plane, or whose key is lost, heals by itself."""
    await world.add_cache(digest=D1, keys=MutationKeys(current=b"x" * 32, previous=None))
    status = await stable(world)
    assert status.resolved_digest == D1
    assert world.events() == [("Normal", "GPUKernelCacheResolved")]


async def test_a_refusal_of_admission_is_shown_and_asked_for_again_later(world: CacheWorld):
    world.admission_keys = None
    await world.add_cache(digest=D1)
    await world.annotate({"resolvedDigest": None})
    refused = world.api.faults.fail("PATCH", "/gkmcaches/llama$", 403, times=100)
    status = await stable(world)
    seen = refused.seen
    assert "resolvedDigest is missing; " in state_of(status)[1]
    await stable(world)
    assert refused.seen == seen == 1
    world.time.seconds += SIGN_AGAIN_S
    await world.observe()
    await world.reconcile()
    assert refused.seen == 2
    assert (await world.cache()).status == status


async def test_what_the_previous_key_signed_is_signed_again(world: CacheWorld):
    await world.add_cache(digest=D1)
    before = await stable(world)
    world.admission_keys = world.proof.keys = NEXT_KEYS
    assert await stable(world) == before
    world.proof.keys = MutationKeys(current=NEXT_KEYS.current, previous=None)
    assert await stable(world) == before
    assert world.events() == [("Normal", "GPUKernelCacheResolved")]


async def test_nothing_is_said_of_a_cache_before_the_keys_are_read(world: CacheWorld):
    await world.add_cache(digest=D1)
    await stable(world)
    world.proof.keys = None
    await world.change_leader()
    world.api.requests.clear()
    await world.reconcile()
    assert not world.api.requests.writes()


async def test_a_change_of_the_image_is_followed_and_the_old_digest_is_outdated(world: CacheWorld):
    """G3: with GKM, Outdated never appears, and a new digest wipes the state of the old one."""
    await world.add_cache(digest=D1)
    await world.report("a", {"llama": {D1: a_digest(RUNNING, pods=2)}})
    assert state_of(await stable(world))[0] == "Running"
    await world.change_image(image="registry.example/llama:2", digest=D2)
    await world.report(
        "a", {"llama": {D1: a_digest(OUTDATED, pods=2), D2: a_digest(RUNNING, pods=1)}}
    )
    status = await stable(world)
    kind, message = state_of(status)
    assert (kind, status.resolved_digest) == ("Outdated", D2)
    assert message.endswith("newer version exists: node a")
    assert (status.counts.pods_running, status.counts.pods_outdated) == (1, 2)
    assert world.process.stores.kernel_caches.warm_nodes(LLAMA) == {NodeName("a")}


async def test_pods_are_counted_by_cache_and_digest(world: CacheWorld):
    """G11: with GKM, each of several caches shows the sum of all."""
    await world.add_node("b")
    await world.add_cache(digest=D1)
    await world.add_cache(QWEN, digest=D2)
    await world.report(
        "a", {"llama": {D1: a_digest(RUNNING, pods=3)}, "qwen": {D2: a_digest(EXTRACTED)}}
    )
    await world.report("b", {"qwen": {D2: a_digest(ERROR, detail="disk full")}})
    llama, qwen = await stable(world), await stable(world, QWEN)
    assert llama.counts == CacheCounts(nodes=1, nodes_in_use=1, pods_running=3)
    assert qwen.counts == CacheCounts(nodes=2, nodes_not_in_use=1, nodes_in_error=1)
    assert state_of(qwen)[1].endswith(": node b: disk full")


async def test_a_node_object_without_a_status_writes_nothing(world: CacheWorld):
    """G2: GKM issue 54: its agent loops when a GKMCacheNode has no status."""
    await world.add_cache(digest=D1)
    await stable(world)
    await world.report("a", {})
    await world.observe()
    world.api.requests.clear()
    await world.reconcile()
    assert not world.api.requests.writes()


async def test_pools_are_shown_with_their_warm_and_misfit_nodes(world: CacheWorld):
    await world.add_node("b")
    await world.add_node("old", pool="old", capability="8.0")
    await world.add_node("none", pool=None)
    await world.add_cache(digest=D1)
    await world.report("a", {"llama": {D1: a_digest()}})
    await world.report("b", {"llama": {D1: a_digest(ERROR)}})
    assert (await stable(world)).pools == [
        PoolWarmth(name="old", nodes=1, warm=0, incompatible=1),
        PoolWarmth(name="whole", nodes=2, warm=1, incompatible=0),
    ]


async def test_a_cache_that_fits_no_device_says_so(world: CacheWorld):
    await world.remove_node("a")
    facts = IMAGE.__class__(type="triton", targets=[], layer_bytes=1)
    await world.add_cache(digest=D1, facts=facts)
    assert state_of(await stable(world))[1].endswith("no node has a device that the cache fits")


async def test_a_number_of_warm_nodes_chooses_that_many_that_it_fits(world: CacheWorld):
    for name in ("b", "c", "d"):
        await world.add_node(name)
    await world.add_node("old", capability="8.0")
    await world.add_cache(digest=D1, warm=2)
    await stable(world)
    cache = await world.cache()
    warm = [name for name in ("a", "b", "c", "d") if keeps_warm(cache, NodeName(name))]
    assert len(warm) == 2


async def test_a_deleted_cache_waits_for_its_nodes_and_shows_their_pods(world: CacheWorld):
    await world.add_cache(digest=D1)
    await world.report("a", {"llama": {D1: a_digest(RUNNING, pods=2)}})
    await stable(world)
    await world.delete()
    status = await stable(world)
    assert (status.counts.pods_deleting, status.counts.pods_running) == (2, 0)
    assert status.resolved_digest == D1
    assert world.process.stores.kernel_caches.resolved() == {}
    await world.report("a", {})
    await world.until_stable()
    assert not await world.is_there()


async def test_finalizers_of_others_stay(world: CacheWorld):
    await world.add_cache(digest=D1)
    await world.patch(LLAMA, {"metadata": {"finalizers": ["example.com/theirs"]}})
    await stable(world)
    assert (await world.cache()).metadata.finalizers == ["example.com/theirs", CACHE_FINALIZER]
    await world.delete()
    await stable(world)
    assert (await world.cache()).metadata.finalizers == ["example.com/theirs"]


async def test_a_quiet_cache_costs_no_write(world: CacheWorld):
    await world.add_cache(digest=D1, warm=1)
    await world.report("a", {"llama": {D1: a_digest(RUNNING, pods=1)}})
    before = await stable(world)
    for _ in range(3):
        world.time.seconds += CHECK_S
        await world.observe()
        world.api.requests.clear()
        await world.reconcile()
        assert not world.api.requests.writes()
    await world.change_leader()
    world.api.requests.clear()
    await world.reconcile()
    assert not world.api.requests.writes()
    assert (await world.cache()).status == before


async def test_a_new_leader_repeats_no_event(world: CacheWorld):
    await world.add_cache(digest=D1)
    await world.report("a", {"llama": {D1: a_digest(ERROR, detail="disk full")}})
    await stable(world)
    assert [kind for kind, _ in world.events()] == ["Normal", "Warning"]
    await world.change_leader()
    await stable(world)
    assert world.events() == []


async def test_the_time_of_the_status_moves_with_the_status_only(world: CacheWorld):
    await world.add_cache(digest=D1)
    await world.report("a", {"llama": {D1: a_digest()}})
    first = await stable(world)
    world.time.seconds += 3600
    assert (await stable(world)).last_updated == first.last_updated
    await world.report("a", {"llama": {D1: a_digest(RUNNING, pods=1)}})
    assert (await stable(world)).last_updated > first.last_updated


async def test_a_cache_that_comes_again_under_its_name_is_a_new_one(world: CacheWorld):
    world.admission_keys = None
    await world.add_cache(digest=D1)
    await world.annotate({"mutationSig": None})
    await stable(world)
    await world.delete()
    world.admission_keys = world.proof.keys
    await world.add_cache(digest=Digest(D2))
    assert (await stable(world)).resolved_digest == D2

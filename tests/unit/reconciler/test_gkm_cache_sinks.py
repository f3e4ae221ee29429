"""Caches and their nodes as the index and the controllers see them."""

import msgspec
import pytest

from api.cache_name import CacheName
from api.kinds.gkmcache import CacheConditionType, GKMCacheStatus
from api.kinds.gkmcachenode import CachedDigest, GKMCacheNode
from api.meta import ObjectMeta
from api.names import GKM_ANNOTATIONS, NodeName
from kernelcache.cache_index import CacheIndex, ResolvedCache
from reconciler.sinks.gkm_cache import GKMCacheSink, observe_cache
from reconciler.sinks.gkm_cache_node import (
    CacheNodeKey,
    GKMCacheNodeSink,
    observe_cache_node,
)
from tests.support.kernel_caches import D1, D2, TARGET, a_cache, a_cache_node, a_digest

Caches = dict[str, dict[str, CachedDigest]]
LLAMA = CacheName(namespace="team", name="llama")
QWEN = CacheName(namespace="team", name="qwen")
SHARED = CacheName(namespace="", name="llama")
A, B = NodeName("a"), NodeName("b")


def test_a_cache_is_known_by_its_status_and_until_it_is_deleted():
    index = CacheIndex()
    sink = GKMCacheSink(index)
    sink.namespaced.upsert(a_cache(digest=""))
    assert index.resolved() == {}
    sink.namespaced.upsert(a_cache())
    sink.cluster.upsert(a_cache(namespace="", digest=D2))
    assert index.resolved() == {
        LLAMA: ResolvedCache(digest=D1, targets=(TARGET,)),
        SHARED: ResolvedCache(digest=D2, targets=(TARGET,)),
    }
    sink.namespaced.upsert(a_cache(deletion_timestamp="2026-11-20T10:00:00Z"))
    assert index.resolved().keys() == {SHARED}
    sink.cluster.replace_all([])
    assert (index.resolved(), list(sink.names())) == ({}, [LLAMA])


def test_an_annotation_alone_makes_no_cache_known():
    index = CacheIndex()
    sink = GKMCacheSink(index)
    sink.namespaced.upsert(a_cache(digest="", annotations=dict.fromkeys(GKM_ANNOTATIONS, D1)))
    assert index.resolved() == {}


@pytest.mark.parametrize(
    "status", [GKMCacheStatus(resolved_digest=D1), GKMCacheStatus(resolved_digest="latest")]
)
def test_a_digest_without_its_image_or_that_is_none_is_not_known(status):
    index = CacheIndex()
    sink = GKMCacheSink(index)
    sink.namespaced.upsert(msgspec.structs.replace(a_cache(), status=status))
    assert index.resolved() == {}


def test_of_a_cache_only_our_annotations_are_kept():
    annotations = {**dict.fromkeys(GKM_ANNOTATIONS, "x"), "kubectl": "y" * 1000}
    meta = observe_cache(a_cache(annotations=annotations, labels={"a": "b"})).metadata
    assert (meta.annotations, meta.labels) == (dict.fromkeys(GKM_ANNOTATIONS, "x"), None)


def on_nodes(*objects: GKMCacheNode) -> tuple[GKMCacheNodeSink, CacheIndex, list[CacheName]]:
    index = CacheIndex()
    index.set_cache(LLAMA, ResolvedCache(digest=D1, targets=(TARGET,)))
    sink = GKMCacheNodeSink(index)
    published: list[CacheName] = []
    for item in objects:
        put(sink, item)
    sink.changes.subscribe(published.append)
    return sink, index, published


def put(sink: GKMCacheNodeSink, item: GKMCacheNode) -> None:
    store = sink.namespaced if item.metadata.namespace else sink.cluster
    store.upsert(observe_cache_node(item))


@pytest.mark.parametrize(
    ("state", "is_warm"),
    [
        (CacheConditionType.PENDING, False),
        (CacheConditionType.EXTRACTED, True),
        (CacheConditionType.RUNNING, True),
        (CacheConditionType.OUTDATED, True),
        (CacheConditionType.UNLOAD_ERROR, True),
        (CacheConditionType.ERROR, False),
    ],
)
def test_a_node_is_warm_while_the_files_are_on_its_disk(state, is_warm):
    _, index, _ = on_nodes(a_cache_node("a", {"llama": {D1: a_digest(state)}}))
    assert index.warm_nodes(LLAMA) == (frozenset({A}) if is_warm else frozenset())


def test_of_a_change_only_the_caches_that_it_concerns_are_published():
    both: Caches = {"llama": {D1: a_digest()}, "qwen": {D2: a_digest()}}
    sink, _, published = on_nodes(a_cache_node("a", both))
    put(sink, a_cache_node("a", {**both, "qwen": {D2: a_digest(CacheConditionType.RUNNING)}}))
    assert published == [QWEN]


def test_a_former_digest_is_kept_beside_a_new_one():
    """G4: with GKM, a new digest wipes the status map of the old one."""
    old = a_digest(CacheConditionType.OUTDATED, pods=2)
    sink, _, _ = on_nodes(a_cache_node("a", {"llama": {D1: old, D2: a_digest()}}))
    assert {digest: use.pods for digest, use in sink.of_cache(LLAMA)[A].items()} == {D1: 2, D2: 0}


def test_an_object_without_a_status_says_nothing_and_is_there():
    """G2: GKM issue 54: its agent loops while a GKMCacheNode has no status."""
    bare = GKMCacheNode(metadata=ObjectMeta(name="a", namespace="team", uid="u"))
    sink, _, published = on_nodes(bare)
    put(sink, bare)
    assert (published, sink.of_cache(LLAMA), len(sink)) == ([], {}, 1)
    assert sink.get(CacheNodeKey("team", A)) is not None


def test_an_object_that_goes_takes_what_it_said_along():
    sink, index, published = on_nodes(
        a_cache_node("a", {"llama": {D1: a_digest()}}),
        a_cache_node("b", {"llama": {D1: a_digest()}}),
        a_cache_node("a", {"llama": {D1: a_digest()}}, namespace=""),
    )
    sink.namespaced.replace_all(
        [observe_cache_node(a_cache_node("b", {"llama": {D1: a_digest()}}))]
    )
    assert published == [LLAMA]
    assert index.warm_nodes(LLAMA) == {B}
    assert (list(sink.of_cache(LLAMA)), list(sink.of_cache(SHARED))) == ([B], [A])
    assert [item.key for item in sink.of_node(A)] == [CacheNodeKey("", A)]


def test_the_two_scopes_are_apart():
    sink, index, _ = on_nodes(a_cache_node("a", {"llama": {D1: a_digest()}}, namespace=""))
    assert (index.warm_nodes(LLAMA), list(sink.of_cache(SHARED))) == (frozenset(), [A])


def test_many_nodes_share_what_they_have_in_common():
    """1,000 nodes of 100 caches in one state keep one entry a cache, not one a cache and node."""
    caches: Caches = {f"cache-{number}": {D1: a_digest()} for number in range(100)}
    body = msgspec.json.encode(a_cache_node("n", caches))
    read = [observe_cache_node(msgspec.json.decode(body, type=GKMCacheNode)) for _ in range(2)]
    digests = {id(found) for item in read for found in item.caches.values()}
    assert (len(digests), len({id(name) for item in read for name in item.caches})) == (1, 100)

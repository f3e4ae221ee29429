"""Status of caches over many nodes: equal to the plain counts, and no more work than what changed."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cache_name import CacheName
from api.image_reference import Digest
from api.kinds.gkmcache import CacheConditionType, GKMCacheSpec, GKMCacheStatus, WarmPolicy
from api.kinds.gkmcachenode import CachedDigest
from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus, PoolRef
from api.meta import ObjectMeta
from api.names import DeviceName, NodeName, PoolName
from kernelcache.cache_conditions import reported_state, reported_use
from kernelcache.cache_counts import CacheOnNode, counts_of_cache
from kernelcache.cache_index import CacheIndex
from reconciler.kernelcache.cache_figures import (
    CacheObservations,
    CacheResolution,
    status_of_cache,
)
from reconciler.kernelcache.device_targets import ANY_POOL, DeviceTargets, fitting_nodes
from reconciler.runtime.device_store import DeviceStore
from reconciler.sinks.gkm_cache_node import GKMCacheNodeSink, observe_cache_node
from tests.support.kernel_caches import D1, D2, IMAGE, TARGET, a_cache, a_cache_node, a_digest

Caches = dict[str, dict[str, CachedDigest]]
NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
LLAMA = CacheName(namespace="team", name="llama")
NOTHING = GKMCacheStatus()
RESOLVED = CacheResolution(digest=D1, image=IMAGE)


def a_gpu(
    name: str, node: str, *, pool: str | None = "whole", capability: str = "9.0"
) -> GPUDevice:
    return GPUDevice(
        metadata=ObjectMeta(name=name, uid=name),
        status=GPUDeviceStatus(
            node_name=node,
            compute_capability=capability,
            pool_ref=PoolRef(name=pool) if pool is not None else None,
        ),
    )


def some_targets(*gpus: GPUDevice) -> DeviceTargets:
    store = DeviceStore()
    targets = DeviceTargets(store)
    store.changes.subscribe(targets.observe)
    for gpu in gpus:
        store.upsert(gpu)
    return targets


def status(
    nodes: dict[str, dict[str, CachedDigest]],
    *gpus: GPUDevice,
    current: GKMCacheStatus = NOTHING,
    resolution: CacheResolution = RESOLVED,
    **spec: Any,
) -> GKMCacheStatus:
    sink = GKMCacheNodeSink(CacheIndex())
    for node, digests in nodes.items():
        sink.namespaced.upsert(observe_cache_node(a_cache_node(node, {"llama": digests})))
    cache = msgspec.structs.replace(a_cache(), spec=GKMCacheSpec(image="i", **spec))
    observations = CacheObservations(nodes=sink.of_cache(LLAMA), targets=some_targets(*gpus))
    return status_of_cache(cache, current, resolution, observations=observations, now=NOW)


DIGESTS = st.dictionaries(
    st.sampled_from([D1, D2]),
    st.builds(
        a_digest,
        st.sampled_from(CacheConditionType),
        pods=st.integers(0, 2),
        detail=st.sampled_from(["", "disk full"]),
    ),
    max_size=2,
)
NODES = st.dictionaries(st.sampled_from([f"n{number}" for number in range(8)]), DIGESTS)


@given(nodes=NODES, current=st.sampled_from([D1, D2, None]))
def test_equal_nodes_are_counted_once_and_the_sums_are_those_of_all(nodes, current):
    resolution = CacheResolution(digest=current, image=IMAGE if current else None)
    found = status(nodes, resolution=resolution).counts
    expected = counts_of_cache(
        CacheOnNode(
            current=current,
            is_deleting=False,
            digests={Digest(digest): reported_use(item) for digest, item in digests.items()},
        )
        for digests in nodes.values()
    )
    assert found == expected


@given(nodes=NODES)
def test_a_status_that_was_written_is_not_written_again(nodes):
    gpus = [a_gpu(f"{node}-0", node) for node in ("n0", "n1")]
    first = status(nodes, *gpus, warm=1)
    again = status(nodes, *gpus, current=first, warm=1)
    assert again is first


def test_the_transition_time_stays_while_the_state_does():
    running: Caches = {"a": {D1: a_digest(CacheConditionType.RUNNING, pods=1)}}
    first = status(running)
    more: Caches = {"a": {D1: a_digest(CacheConditionType.RUNNING, pods=2)}}
    later = status(more, current=first)
    assert later is not first
    assert later.conditions == first.conditions


@pytest.mark.parametrize(
    ("warm", "gpus", "text"),
    [
        (None, [], "Not yet complete: no node has a device that the cache fits"),
        (None, [a_gpu("a-0", "a", capability="8.0")], "Not yet complete: no node has a device"),
        (None, [a_gpu("a-0", "a")], "Not yet complete"),
        (WarmPolicy.DEMAND, [a_gpu("a-0", "a")], "Not yet complete: a node pulls it for the first"),
    ],
)
def test_a_cache_that_no_node_has_says_what_it_waits_for(warm, gpus, text):
    (condition,) = status({}, *gpus, warm=warm).conditions or []
    assert condition.message.startswith(text)


def test_a_fault_is_the_state_whatever_nodes_have():
    nodes: Caches = {"a": {D1: a_digest(CacheConditionType.RUNNING, pods=1)}}
    found = status(nodes, resolution=CacheResolution(fault="unsigned"))
    state = reported_state(found.conditions)
    assert (state.type, state.detail) == (CacheConditionType.ERROR, "unsigned")
    assert (found.counts.pods_outdated, found.resolved_digest, found.pools) == (1, "", None)


def test_targets_follow_devices_that_come_go_and_change_their_pool():
    store = DeviceStore()
    targets = DeviceTargets(store)
    published: list[NodeName] = []
    targets.changes.subscribe(published.append)
    store.changes.subscribe(targets.observe)
    store.upsert(a_gpu("a-0", "a"))
    store.upsert(a_gpu("a-1", "a"))
    assert (targets.pools(), published) == ([PoolName("whole")], [NodeName("a")])
    store.upsert(a_gpu("a-1", "a", pool="other"))
    assert targets.pools() == [PoolName("other"), PoolName("whole")]
    store.discard(DeviceName("a-1"))
    store.upsert(a_gpu("a-0", "a", pool=None))
    assert (targets.pools(), list(targets.of_pool(ANY_POOL))) == ([], [NodeName("a")])
    store.discard(DeviceName("a-0"))
    assert dict(targets.of_pool(ANY_POOL)) == {}


def test_a_node_with_one_fitting_device_of_several_fits():
    targets = some_targets(a_gpu("a-0", "a", capability="8.0"), a_gpu("a-1", "a"))
    assert fitting_nodes(targets.of_pool(ANY_POOL), [TARGET]) == {NodeName("a")}
    assert fitting_nodes(targets.of_pool(ANY_POOL), []) == set()


def test_many_nodes_and_caches_cost_what_changed():
    """A change of one node of one cache is one key; each distinct state is counted once; devices of one product are
    compared once a pool."""
    sink = GKMCacheNodeSink(CacheIndex())
    published: list[CacheName] = []
    sink.changes.subscribe(published.append)
    caches: Caches = {f"cache-{number}": {D1: a_digest()} for number in range(20)}
    for number in range(200):
        sink.namespaced.upsert(observe_cache_node(a_cache_node(f"n{number}", caches)))
    assert len(published) == 4_000
    published.clear()
    one_runs: Caches = {**caches, "cache-7": {D1: a_digest(CacheConditionType.RUNNING, pods=1)}}
    sink.namespaced.upsert(observe_cache_node(a_cache_node("n1", one_runs)))
    changed = CacheName(namespace="team", name="cache-7")
    assert published == [changed]
    distinct = {id(digests) for digests in sink.of_cache(changed).values()}
    assert (len(sink.of_cache(changed)), len(distinct)) == (200, 2)
    targets = some_targets(*(a_gpu(f"n{number}-0", f"n{number}") for number in range(200)))
    nodes = targets.of_pool(PoolName("whole"))
    assert len({*nodes.values()}) == 1
    assert len(fitting_nodes(nodes, [TARGET])) == 200

"""Of a number of warm nodes, each node knows by itself whether it is one."""

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gkmcache import GKMCache, GKMCacheSpec, GKMCacheStatus, WarmPolicy
from api.meta import ObjectMeta
from api.names import NodeName
from kernelcache.warm_policy import keeps_warm, warm_below

NODES = st.sets(st.integers(0, 200).map(lambda n: NodeName(f"node-{n}")), max_size=60)


def a_cache(warm: WarmPolicy | int, below: str = "") -> GKMCache:
    return GKMCache(
        metadata=ObjectMeta(name="cache", uid="u-1"),
        spec=GKMCacheSpec(warm=warm),
        status=GKMCacheStatus(warm_below=below),
    )


@given(NODES, st.integers(1, 70))
def test_as_many_nodes_as_wanted_keep_it(nodes: set[NodeName], desired: int):
    cache = a_cache(desired, warm_below("u-1", nodes, desired))
    assert sum(keeps_warm(cache, node) for node in nodes) == min(desired, len(nodes))


@given(NODES.filter(len), st.integers(1, 70))
def test_a_node_that_comes_moves_at_most_one_other(nodes: set[NodeName], desired: int):
    new = NodeName("node-that-comes")
    before = a_cache(desired, warm_below("u-1", nodes, desired))
    after = a_cache(desired, warm_below("u-1", nodes | {new}, desired))
    kept = [{node for node in nodes if keeps_warm(item, node)} for item in (before, after)]
    assert len(kept[0] ^ kept[1]) <= 1


def test_all_and_none():
    assert keeps_warm(a_cache(WarmPolicy.ALL), NodeName("a"))
    assert not keeps_warm(a_cache(WarmPolicy.DEMAND), NodeName("a"))


def test_without_a_published_place_no_node_of_a_number_keeps_it():
    assert not keeps_warm(a_cache(3), NodeName("a"))

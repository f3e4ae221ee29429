"""Counts are of one cache: its digests, its nodes and its pods, and no other cache's."""

from hypothesis import given
from hypothesis import strategies as st

from api.image_reference import Digest
from api.kinds.gkmcache import CacheConditionType as Type
from api.kinds.gkmcache import CacheCounts
from kernelcache.cache_conditions import CacheState, DigestUse
from kernelcache.cache_counts import CacheOnNode, counts_of_cache, counts_of_node

NEW, OLD = Digest("sha256:" + "1" * 64), Digest("sha256:" + "0" * 64)


def a_use(type_: Type, pods: int = 0) -> DigestUse:
    return DigestUse(state=CacheState(type_), pods=pods)


def on_node(
    digests: dict[Digest, DigestUse], *, current: Digest | None = NEW, is_deleting: bool = False
) -> CacheOnNode:
    return CacheOnNode(current=current, is_deleting=is_deleting, digests=digests)


def test_states_of_nodes_are_counted():
    nodes = [
        on_node({NEW: a_use(Type.RUNNING, 2)}),
        on_node({NEW: a_use(Type.EXTRACTED)}),
        on_node({NEW: a_use(Type.PENDING)}),
        on_node({NEW: a_use(Type.ERROR)}),
        on_node({}),
    ]
    assert counts_of_cache(nodes) == CacheCounts(
        nodes=4, nodes_in_use=1, nodes_not_in_use=1, nodes_in_error=1, pods_running=2
    )


def test_each_of_two_caches_on_a_node_shows_its_own_counts():
    """G11: GKM shows the sum of all caches of the namespace on each."""
    busy, idle = on_node({NEW: a_use(Type.RUNNING, 3)}), on_node({OLD: a_use(Type.EXTRACTED)})
    assert counts_of_cache([busy]).pods_running == 3
    assert counts_of_cache([idle]).pods_running == 0
    assert counts_of_node([busy, idle]) == CacheCounts(nodes=1, nodes_in_use=1, pods_running=3)


def test_pods_of_a_former_digest_are_outdated():
    """G4: with GKM a new digest wipes the old one's pods."""
    node = on_node({OLD: a_use(Type.OUTDATED, 2), NEW: a_use(Type.RUNNING, 1)})
    assert node.counts() == CacheCounts(nodes=1, nodes_in_use=1, pods_running=1, pods_outdated=2)


def test_node_that_has_both_digests_in_use_is_one_node():
    nodes = [on_node({OLD: a_use(Type.OUTDATED, 1), NEW: a_use(Type.EXTRACTED)})]
    assert counts_of_cache(nodes) == CacheCounts(nodes=1, nodes_in_use=1, pods_outdated=1)


def test_pods_of_a_cache_that_is_being_deleted_are_deleting():
    node = on_node({OLD: a_use(Type.OUTDATED, 2), NEW: a_use(Type.RUNNING, 1)}, is_deleting=True)
    assert node.counts() == CacheCounts(nodes=1, nodes_in_use=1, pods_deleting=3)


def test_node_holds_the_cache_until_its_last_digest_is_gone():
    """The finalizer goes at nodeCnt 0: a former digest that waits for its removal is on the node."""
    assert counts_of_cache([on_node({OLD: a_use(Type.EXTRACTED)})]) == CacheCounts(nodes=1)
    assert counts_of_cache([on_node({})]) == CacheCounts()


def test_errors_count_as_they_matter():
    assert on_node({OLD: a_use(Type.ERROR), NEW: a_use(Type.EXTRACTED)}).counts() == CacheCounts(
        nodes=1, nodes_not_in_use=1
    )
    assert on_node({OLD: a_use(Type.UNLOAD_ERROR)}).counts().nodes_in_error == 1


def test_pods_of_an_unresolved_image_are_outdated():
    node = on_node({OLD: a_use(Type.OUTDATED, 1)}, current=None)
    assert node.counts() == CacheCounts(nodes=1, nodes_in_use=1, pods_outdated=1)


USES = st.builds(a_use, st.sampled_from(Type), st.integers(0, 3))
CACHES = st.builds(
    CacheOnNode,
    current=st.sampled_from([None, OLD, NEW]),
    is_deleting=st.booleans(),
    digests=st.dictionaries(st.sampled_from([OLD, NEW]), USES),
)


@given(st.lists(CACHES, max_size=5))
def test_every_pod_is_counted_once_and_a_node_at_most_once(nodes):
    found = counts_of_cache(nodes)
    pods = sum(use.pods for node in nodes for use in node.digests.values())
    assert found.pods_running + found.pods_outdated + found.pods_deleting == pods
    assert found.nodes_in_use + found.nodes_not_in_use <= found.nodes <= len(nodes)
    assert found.nodes_in_error <= found.nodes

"""Placement knows where the caches of a pod are warm, at their present digest."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.cache_name import CacheName
from api.image_reference import Digest
from api.names import NodeName
from kernelcache.cache_index import CacheIndex, ResolvedCache

NAMES = [CacheName(namespace="team", name="a"), CacheName(namespace="", name="a")]
DIGESTS = [Digest("sha256:" + letter * 64) for letter in "ab"]
NODES = [NodeName("n1"), NodeName("n2")]

Extracted = frozenset[tuple[CacheName, Digest]]


def node_steps(cache: CacheName) -> st.SearchStrategy[tuple[NodeName, str, Extracted]]:
    """An object of a node has caches of its own namespace only."""
    entries = st.frozensets(st.tuples(st.just(cache), st.sampled_from(DIGESTS)))
    return st.tuples(st.sampled_from(NODES), st.just(cache.namespace), entries)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.none() | st.sampled_from(DIGESTS)),
        *map(node_steps, NAMES),
    )
)


@given(STEPS)
def test_it_agrees_with_what_was_said_last(steps: list[Any]):
    index = CacheIndex()
    caches: dict[CacheName, Digest] = {}
    nodes: dict[tuple[NodeName, str], Extracted] = {}
    for step in steps:
        before = index.generation, dict(caches), dict(nodes)
        if len(step) == 2:
            name, digest = step
            index.set_cache(name, ResolvedCache(digest=digest, targets=()) if digest else None)
            caches.pop(name, None)
            if digest:
                caches[name] = digest
        else:
            index.set_node(*step)
            nodes.pop(step[:2], None)
            if step[2]:
                nodes[step[:2]] = step[2]
        assert (index.generation != before[0]) == ((caches, nodes) != before[1:])
    for name in NAMES:
        warm = {node for (node, _), found in nodes.items() if (name, caches.get(name)) in found}
        assert index.warm_nodes(name) == (warm if name in caches else set())
    preference = index.demand(NAMES)
    assert (preference is None) == (not caches)
    if preference is not None:
        assert preference.warm_nodes == set.intersection(
            *({*index.warm_nodes(cache)} for cache in caches)
        )

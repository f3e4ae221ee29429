"""`gkmcachenode.index`: what the objects of nodes say of each cache, and into the index of caches.

A node's object holds all caches of a namespace. Of a change, only the caches that it concerns are published, and
each cache has its nodes at hand: 1,000 nodes with 100 caches each are 100,000 entries, most of them equal.
"""

import functools
from dataclasses import dataclass
from sys import intern
from typing import TYPE_CHECKING, Final, final

from api.cache_name import CacheName
from api.image_reference import Digest
from api.kinds.gkmcache import CacheConditionType
from api.names import NodeName
from api.text import truncate
from kernelcache.cache_conditions import CacheState, DigestUse, reported_use
from kube.event_source import EventSource
from kube.store import IndexedStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from api.kinds.gkmcachenode import CachedDigest, GKMCacheNode
    from kernelcache.cache_index import CacheIndex
    from kube.unread_objects import UnreadObject

    DigestsOnNode = Mapping[Digest, DigestUse]

MAX_DETAIL: Final = 256
"""Kept of a node's text: as much as a cache shows of it."""
WARM: Final = frozenset(
    {
        CacheConditionType.EXTRACTED,
        CacheConditionType.RUNNING,
        CacheConditionType.OUTDATED,
        CacheConditionType.UNLOAD_ERROR,
    }
)
"""States in which the files are on the node's disk."""
_NOTHING: "Final[Mapping[NodeName, DigestsOnNode]]" = {}


@final
@dataclass(frozen=True, slots=True, order=True)
class CacheNodeKey:
    """Identity of a node's object."""

    namespace: str
    """Empty for the ClusterGKMCacheNode."""
    node: NodeName


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNodeFacts:
    """A GKMCacheNode or ClusterGKMCacheNode, as far as the control plane reads it."""

    key: CacheNodeKey
    uid: str
    is_deleting: bool
    finalizers: tuple[str, ...]
    caches: "Mapping[str, DigestsOnNode]"
    """Caches by name of the cache, each with at least one digest."""


def observe_cache_node(item: "GKMCacheNode") -> CacheNodeFacts:
    meta = item.metadata
    found = {
        intern(name): _digests(
            tuple((digest, _use(use)) for digest, use in sorted(digests.items()))
        )
        for name, digests in (item.status.caches or {}).items()
        if digests
    }
    return CacheNodeFacts(
        # By its name, which identifies it; its status may not be there yet (GKM's issue 54).
        key=CacheNodeKey(intern(meta.namespace), NodeName(intern(meta.name))),
        uid=meta.uid,
        is_deleting=meta.deletion_timestamp is not None,
        finalizers=tuple(map(intern, meta.finalizers or ())),
        caches=found,
    )


@final
class GKMCacheNodeSink:
    """Objects of both kinds by namespace and node, and each cache's nodes; each kind has an informer of its own."""

    def __init__(self, index: "CacheIndex") -> None:
        self._index = index
        self.namespaced = _store()
        """Sink of GKMCacheNodes."""
        self.cluster = _store()
        """Sink of ClusterGKMCacheNodes."""
        self._current: dict[CacheNodeKey, CacheNodeFacts] = {}
        self._of_node: dict[NodeName, set[CacheNodeKey]] = {}
        self._of_cache: dict[CacheName, dict[NodeName, DigestsOnNode]] = {}
        self.changes: EventSource[CacheName] = EventSource()
        """Caches of which a node says something else; the index already has the change."""
        self.nodes: EventSource[NodeName] = EventSource()
        """Nodes of objects that came, changed or went."""
        for store in (self.namespaced, self.cluster):
            store.changes.subscribe(self._take_over)

    def __len__(self) -> int:
        return len(self._current)

    def get(self, key: CacheNodeKey) -> CacheNodeFacts | None:
        return self._current.get(key)

    def of_cache(self, name: CacheName) -> "Mapping[NodeName, DigestsOnNode]":
        """Return the digests of a cache by node: read it, don't keep it."""
        return self._of_cache.get(name, _NOTHING)

    def of_node(self, node: NodeName) -> "list[CacheNodeFacts]":
        """Return the objects of a node, that of the cluster first."""
        return [self._current[key] for key in sorted(self._of_node.get(node, ()))]

    def caches(self) -> "Iterator[CacheName]":
        """Return the caches of which a node has something, whether these exist or not."""
        return iter(list(self._of_cache))

    def node_names(self) -> "list[NodeName]":
        return list(self._of_node)

    def _take_over(self, key: CacheNodeKey) -> None:
        store = self.namespaced if key.namespace else self.cluster
        before, now = self._current.pop(key, None), store.get(_text(key))
        if now is not None:
            self._current[key] = now
            self._of_node.setdefault(key.node, set()).add(key)
        elif before is not None:
            self._forget(key)
        then, caches = (item.caches if item is not None else {} for item in (before, now))
        changed = [name for name in {**then, **caches} if then.get(name) != caches.get(name)]
        for name in changed:
            self._put(CacheName(namespace=key.namespace, name=name), key.node, caches.get(name))
        if changed:
            self._index.set_node(key.node, key.namespace, _extracted(key.namespace, caches))
        for name in changed:
            self.changes.publish(CacheName(namespace=key.namespace, name=name))
        self.nodes.publish(key.node)

    def _forget(self, key: CacheNodeKey) -> None:
        keys = self._of_node[key.node]
        keys.discard(key)
        if not keys:
            del self._of_node[key.node]

    def _put(self, name: CacheName, node: NodeName, digests: "DigestsOnNode | None") -> None:
        if digests is not None:
            self._of_cache.setdefault(name, {})[node] = digests
            return
        nodes = self._of_cache[name]
        del nodes[node]
        if not nodes:
            del self._of_cache[name]


def _extracted(
    namespace: str, caches: "Mapping[str, DigestsOnNode]"
) -> frozenset[tuple[CacheName, Digest]]:
    return frozenset(
        _pair(namespace, name, digest)
        for name, digests in caches.items()
        for digest, use in digests.items()
        if use.state.type in WARM
    )


def _store() -> "IndexedStore[str, CacheNodeKey, CacheNodeFacts]":
    return IndexedStore(lambda item: _text(item.key), lambda item: item.key, identify=_identity_of)


def _identity_of(unread: "UnreadObject") -> tuple[str, CacheNodeKey]:
    key = CacheNodeKey(namespace=unread.namespace, node=NodeName(unread.name))
    return _text(key), key


def _text(key: CacheNodeKey) -> str:
    return f"{key.namespace}/{key.node}"


def _use(digest: "CachedDigest") -> DigestUse:
    use = reported_use(digest)
    detail = truncate(use.state.detail, MAX_DETAIL)
    return DigestUse(state=CacheState(use.state.type, detail), pods=use.pods)


@functools.lru_cache(maxsize=16_384)
def _digests(uses: tuple[tuple[str, DigestUse], ...]) -> "DigestsOnNode":
    """Return one object for equal ones: most nodes have the same caches in the same state."""
    return {Digest(digest): use for digest, use in uses}


@functools.lru_cache(maxsize=16_384)
def _pair(namespace: str, name: str, digest: Digest) -> tuple[CacheName, Digest]:
    return CacheName(namespace=namespace, name=name), digest

"""`gkmcache.index`: GKMCaches and ClusterGKMCaches, whole, and into the index of caches.

Placement knows a cache by its status alone, which the leader writes once the annotations are proven.
"""

from sys import intern
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.cache_name import CacheName
from api.kinds.gkmcache import GKMCache
from api.names import GKM_ANNOTATIONS
from kernelcache.cache_index import resolved_cache
from kube import resources
from kube.event_source import EventSource
from kube.store import IndexedStore
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelcache.cache_index import CacheIndex

RBAC: Final = (
    PolicyRule(
        group=resources.GKM_CACHES.group,
        resources=(
            resources.GKM_CACHES.plural,
            resources.CLUSTER_GKM_CACHES.plural,
            resources.GKM_CACHE_NODES.plural,
            resources.CLUSTER_GKM_CACHE_NODES.plural,
        ),
        verbs=("list", "watch"),
    ),
)
"""Rights of both sinks of kernel caches."""


def observe_cache(cache: GKMCache) -> GKMCache:
    """Return the cache without labels and annotations that only others read."""
    meta = cache.metadata
    annotations = meta.annotations or {}
    kept = {key: annotations[key] for key in GKM_ANNOTATIONS if key in annotations}
    return msgspec.structs.replace(
        cache,
        metadata=msgspec.structs.replace(
            meta,
            namespace=intern(meta.namespace),
            labels=None,
            annotations=kept or None,
            owner_references=None,
        ),
    )


@final
class GKMCacheSink:
    """Caches of both kinds by name; each kind has an informer of its own."""

    def __init__(self, index: "CacheIndex") -> None:
        self._index = index
        self.namespaced = _store()
        """Sink of GKMCaches."""
        self.cluster = _store()
        """Sink of ClusterGKMCaches."""
        self.changes: EventSource[CacheName] = EventSource()
        """Caches of both kinds; the index already has the change."""
        for store in (self.namespaced, self.cluster):
            store.changes.subscribe(self._take_over)

    def __iter__(self) -> "Iterator[GKMCache]":
        for store in (self.namespaced, self.cluster):
            for key in sorted(store.keys()):
                found = store.get(key)
                if found is not None:
                    yield found

    def get(self, name: CacheName) -> GKMCache | None:
        store = self.namespaced if name.namespace else self.cluster
        return store.get(_key(name))

    def names(self) -> "Iterator[CacheName]":
        for store in (self.namespaced, self.cluster):
            yield from store.groups()

    def _take_over(self, name: CacheName) -> None:
        cache = self.get(name)
        self._index.set_cache(name, resolved_cache(cache) if cache is not None else None)
        self.changes.publish(name)


def _store() -> "IndexedStore[str, CacheName, GKMCache]":
    return IndexedStore(
        lambda cache: _key(cache.cache_name),
        lambda cache: cache.cache_name,
        identify=lambda unread: (
            _key(name := CacheName(namespace=unread.namespace, name=unread.name)),
            name,
        ),
    )


def _key(name: CacheName) -> str:
    return f"{name.namespace}/{name.name}"

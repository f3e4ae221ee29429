"""Watches of the caches' kinds: all caches, and the objects of this node, of which there is one a namespace.

A cache is projected to what a node needs of it, so that the counts that the leader writes wake no node.
"""

from typing import TYPE_CHECKING, Any, TypeVar, final

from msgspec import structs

from api.cache_name import CacheName
from api.kinds.gkmcache import ClusterGKMCache, GKMCache, GKMCacheStatus
from api.kinds.gkmcachenode import ClusterGKMCacheNode, GKMCacheNode
from api.meta import ObjectMeta
from api.names import RESOLVED_DIGEST_ANNOTATION
from kube import resources
from kube.informer import Informer, Selection
from kube.store import IndexedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.clock import Clock
    from api.names import NodeName
    from kube.client import KubeClient
    from kube.unread_objects import UnreadObject

Cache = TypeVar("Cache", bound=GKMCache)
Item = TypeVar("Item")


@final
class CacheObjects:
    """The caches, and this node's objects; all methods are plain reads."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, node: "NodeName") -> None:
        """Nothing is requested before the informers run."""
        self._caches = tuple(_cache_store() for _ in range(2))
        self._nodes = tuple(_node_store() for _ in range(2))
        own = Selection(field_selector=f"metadata.name={node}")
        self.informers: tuple[Informer[Any], ...] = (
            *(
                Informer(
                    client,
                    resource,
                    kind,
                    sink=sink,
                    clock=clock,
                    project=without_unread_fields,
                    is_optional=True,
                )
                for resource, kind, sink in (
                    (resources.GKM_CACHES, GKMCache, self._caches[0]),
                    (resources.CLUSTER_GKM_CACHES, ClusterGKMCache, self._caches[1]),
                )
            ),
            *(
                Informer(
                    client, resource, kind, sink=sink, clock=clock, selection=own, is_optional=True
                )
                for resource, kind, sink in (
                    (resources.GKM_CACHE_NODES, GKMCacheNode, self._nodes[0]),
                    (resources.CLUSTER_GKM_CACHE_NODES, ClusterGKMCacheNode, self._nodes[1]),
                )
            ),
        )

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    def caches(self) -> "dict[CacheName, GKMCache]":
        """Return all caches of both kinds."""
        return {item.cache_name: item for store in self._caches for item in _all(store)}

    def unread(self) -> "frozenset[CacheName]":
        """Return the caches that exist and that this version cannot read."""
        return frozenset(
            CacheName(namespace=namespace, name=name)
            for store in self._caches
            for namespace, _, name in (key.partition("/") for key in store.unread)
        )

    def get(self, name: "CacheName") -> GKMCache | None:
        """Return a cache; one of each kind may have the name, and only the one that is named is it."""
        return self._caches[0 if name.namespace else 1].get(_key_of(name.namespace, name.name))

    def node_objects(self) -> dict[str, GKMCacheNode]:
        """Return the objects of this node by namespace; that of ClusterGKMCaches has the empty one."""
        return {item.metadata.namespace: item for store in self._nodes for item in _all(store)}

    def wrote(self, node: GKMCacheNode) -> None:
        """Take over what the API server stored for us, before the watch shows it."""
        self._nodes[0 if node.metadata.namespace else 1].upsert(node)

    def deleted(self, node: GKMCacheNode) -> None:
        """Forget an object that the API server deleted for us."""
        self._nodes[0 if node.metadata.namespace else 1].discard(node)

    def subscribe(self, changed: "Callable[[], None]") -> None:
        """Have it called at each change; it must be quick, and not raise."""
        for source in (
            *(cache.changes for cache in self._caches),
            *(node.changes for node in self._nodes),
        ):
            source.subscribe(lambda _key: changed())


def without_unread_fields(cache: Cache) -> Cache:
    """Return what a node needs of a cache."""
    metadata, status = cache.metadata, cache.status
    digest = metadata.annotation(RESOLVED_DIGEST_ANNOTATION)
    is_proven = digest is not None and digest == status.resolved_digest
    return structs.replace(
        cache,
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            deletion_timestamp=metadata.deletion_timestamp,
            annotations=None if digest is None else {RESOLVED_DIGEST_ANNOTATION: digest},
        ),
        spec=structs.replace(cache.spec, verification=None),
        status=GKMCacheStatus(
            resolved_digest=status.resolved_digest,
            image=status.image,
            warm_below=status.warm_below,
            conditions=None if is_proven else status.conditions,
        ),
    )


def _cache_store() -> IndexedStore[str, str, GKMCache]:
    return IndexedStore(_key, _key, identify=_keys_of)


def _node_store() -> IndexedStore[str, str, GKMCacheNode]:
    return IndexedStore(_key, _key, identify=_keys_of)


def _keys_of(unread: "UnreadObject") -> tuple[str, str]:
    key = _key_of(unread.namespace, unread.name)
    return key, key


def _key(cache: GKMCache | GKMCacheNode) -> str:
    return _key_of(cache.metadata.namespace, cache.metadata.name)


def _key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _all(store: "IndexedStore[str, str, Item]") -> "Iterator[Item]":
    keys = store.keys()
    return (item for key in keys if (item := store.get(key)) is not None)

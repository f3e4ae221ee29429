"""The caches that there are and the nodes where each is warm: what placement asks about a pod that mounts one.

Filled by the observers of the kinds' objects; no I/O. A pod's caches are its volumes of the CSI driver. The index is
what `pool.device_limit` asks for.
"""

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.image_reference import parse_digest
from api.text import listed
from kernelcache.compatibility import Fits, Incompatible, cuda_target, device_fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.cache_name import CacheName
    from api.image_reference import Digest
    from api.kinds.gkmcache import GKMCache, KernelTarget
    from api.names import NodeName


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCache:
    """A cache whose image is resolved."""

    digest: "Digest"
    targets: "tuple[KernelTarget, ...]"


@final
@dataclass(frozen=True, slots=True)
class CacheTargets:
    """What the caches that a pod mounts demand of each of its devices."""

    caches: "tuple[tuple[CacheName, ResolvedCache], ...]"
    """Caches in order; those that do not exist or are not resolved demand nothing."""

    def fits(self, compute_capability: str) -> bool:
        """Say whether every cache has kernels for a device."""
        return all(
            isinstance(_fit(cache.targets, compute_capability), Fits) for _, cache in self.caches
        )

    def incompatibility(self, capabilities: "Iterable[str]") -> tuple[str, str]:
        """Return the caches that do not fit such devices, as subject and verb of a sentence, and the reason.

        A cache that fits none of them is named alone. Where each fits some and none of the devices fits all caches,
        they are named together.
        """
        distinct = tuple(capabilities)
        first: Incompatible | None = None
        several: list[CacheName] = []
        for name, cache in self.caches:
            incompatible = [
                fit
                for item in distinct
                if isinstance(fit := _fit(cache.targets, item), Incompatible)
            ]
            if incompatible and len(incompatible) == len(distinct):
                return f"kernel cache {name} fits", incompatible[0].reason
            if incompatible:
                first = first or incompatible[0]
                several.append(name)
        reason = first.reason if first is not None else "the driver has reported no device"
        return f"kernel caches {listed(map(str, several))} together fit", reason


@final
@dataclass(frozen=True, slots=True)
class CachePreference:
    """What the caches that a pod mounts demand of its node and devices."""

    devices: CacheTargets
    warm_nodes: "frozenset[NodeName]" = field(compare=False)
    """Nodes where all of them are extracted."""


def resolved_cache(cache: "GKMCache") -> ResolvedCache | None:
    """Return what placement knows of a cache; None while it is not resolved, or is being deleted."""
    status = cache.status
    digest = parse_digest(status.resolved_digest)
    if digest is None or status.image is None or cache.is_deleting:
        return None
    return ResolvedCache(digest=digest, targets=tuple(status.image.targets))


@final
class CacheIndex:
    """The caches of the cluster, and where they are warm."""

    def __init__(self) -> None:
        self._caches: dict[CacheName, ResolvedCache] = {}
        self._warm: dict[tuple[CacheName, Digest], set[NodeName]] = {}
        self._on_node: dict[tuple[NodeName, str], frozenset[tuple[CacheName, Digest]]] = {}
        # (node, namespace) -> what its object says is extracted
        self._demands: dict[tuple[CacheName, ...], CachePreference | None] = {}
        # of the present generation
        self.generation = 0
        """Grows with each change."""

    def set_cache(self, name: "CacheName", cache: ResolvedCache | None) -> None:
        """Observe a cache; None where it is gone, deleted, or has no digest yet."""
        if self._caches.get(name) == cache:
            return
        self._bump_generation()
        if cache is None:
            del self._caches[name]
        else:
            self._caches[name] = cache

    def set_node(
        self,
        node: "NodeName",
        namespace: str,
        extracted: "frozenset[tuple[CacheName, Digest]]" = frozenset(),
    ) -> None:
        """Observe a node's object of a namespace, or with an empty one its object of the cluster's caches."""
        before = self._on_node.pop((node, namespace), frozenset())
        if extracted:
            self._on_node[node, namespace] = extracted
        if before == extracted:
            return
        self._bump_generation()
        for item in before - extracted:
            nodes = self._warm[item]
            nodes.discard(node)
            if not nodes:
                del self._warm[item]
        for item in extracted - before:
            self._warm.setdefault(item, set()).add(node)

    def resolved(self) -> "Mapping[CacheName, ResolvedCache]":
        """Return the resolved caches."""
        return self._caches

    def warm_nodes(self, name: "CacheName") -> "frozenset[NodeName]":
        """Return the nodes that have the cache's present digest extracted."""
        cache = self._caches.get(name)
        return frozenset(self._warm.get((name, cache.digest), ())) if cache else frozenset()

    def demand(self, names: "Iterable[CacheName]") -> CachePreference | None:
        """Return what a pod's caches demand; None where it mounts none that is resolved."""
        distinct = tuple(sorted({*names}))
        if distinct not in self._demands:
            if len(self._demands) >= _MAX_DEMANDS:
                self._demands.clear()
            self._demands[distinct] = self._preference(distinct)
        return self._demands[distinct]

    def _preference(self, names: "tuple[CacheName, ...]") -> CachePreference | None:
        found = tuple((item, self._caches[item]) for item in names if item in self._caches)
        if not found:
            return None
        nodes = [self.warm_nodes(name) for name, _ in found]
        return CachePreference(CacheTargets(found), nodes[0].intersection(*nodes[1:]))

    def _bump_generation(self) -> None:
        self.generation += 1
        self._demands.clear()


_MAX_DEMANDS: Final = 256


@functools.lru_cache(maxsize=256)
def _fit(targets: "tuple[KernelTarget, ...]", compute_capability: str) -> "Fits | Incompatible":
    return device_fit(targets, cuda_target(compute_capability))

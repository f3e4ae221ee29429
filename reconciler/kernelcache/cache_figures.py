"""What the status of a cache says: its image, state, counts, warm nodes by pool. Pure.

Most nodes have a cache in one state, and their objects share it (`reconciler.sinks.gkm_cache_node`), so that each distinct one
is counted once.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import msgspec

from api.kinds import gkmcache
from api.status_conditions import format_time
from kernelcache.cache_conditions import CacheState, cache_condition, state_of_cache
from kernelcache.cache_counts import CacheOnNode
from kernelcache.warm_policy import warm_below
from reconciler.kernelcache.device_targets import ANY_POOL, fitting_nodes
from reconciler.sinks.gkm_cache_node import WARM

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from api.image_reference import Digest
    from api.names import NodeName
    from reconciler.kernelcache.device_targets import DeviceTargets
    from reconciler.sinks.gkm_cache_node import DigestsOnNode


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheResolution:
    """The image that nodes may pull, or why there is none."""

    digest: "Digest | None" = None
    image: "gkmcache.CacheImageFacts | None" = None
    """Facts of the image, beside every digest."""
    fault: str = ""
    """Why the cache has no image."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheObservations:
    """What nodes say of the cache, and what their devices run."""

    nodes: "Mapping[NodeName, DigestsOnNode]"
    targets: "DeviceTargets"


def status_of_cache(
    cache: "gkmcache.GKMCache",
    current: gkmcache.GKMCacheStatus,
    resolution: CacheResolution,
    *,
    observations: CacheObservations,
    now: "dt.datetime",
) -> gkmcache.GKMCacheStatus:
    """Return the status; it is `current` itself where nothing differs, so that its time stays."""
    image, nodes = resolution.image, observations.nodes
    fitting = (
        fitting_nodes(observations.targets.of_pool(ANY_POOL), image.targets)
        if image is not None
        else set()
    )
    state = _state(cache, resolution, nodes, fitting=fitting)
    status = gkmcache.GKMCacheStatus(
        resolved_digest=resolution.digest or "",
        image=image,
        warm_below=_warm_below(cache, fitting),
        pools=_pools(resolution, observations) or None,
        conditions=cache_condition(
            state, current.conditions, generation=cache.metadata.generation, now=now
        ),
        counts=_counts(cache, resolution.digest, nodes),
        last_updated=current.last_updated,
    )
    if status == current:
        return current
    return msgspec.structs.replace(status, last_updated=format_time(now))


def _state(
    cache: "gkmcache.GKMCache",
    resolution: CacheResolution,
    nodes: "Mapping[NodeName, DigestsOnNode]",
    *,
    fitting: "set[NodeName]",
) -> CacheState:
    if resolution.fault:
        return CacheState(gkmcache.CacheConditionType.ERROR, resolution.fault)
    if not fitting:
        progress = "no node has a device that the cache fits"
    elif cache.spec.warm_nodes is gkmcache.WarmPolicy.DEMAND:
        progress = "a node pulls it for the first pod that mounts it there"
    else:
        progress = ""
    return state_of_cache(resolution.digest, nodes, progress=progress)


def _warm_below(cache: "gkmcache.GKMCache", fitting: "set[NodeName]") -> str:
    warm_nodes = cache.spec.warm_nodes
    if isinstance(warm_nodes, gkmcache.WarmPolicy):
        return ""
    return warm_below(cache.metadata.uid, fitting, warm_nodes)


def _pools(
    resolution: CacheResolution, observations: CacheObservations
) -> list[gkmcache.PoolWarmth]:
    if resolution.image is None or resolution.digest is None:
        return []
    digest = resolution.digest
    warm = {
        node
        for node, digests in observations.nodes.items()
        if digest in digests and digests[digest].state.type in WARM
    }
    found = []
    for pool in observations.targets.pools():
        nodes = observations.targets.of_pool(pool)
        fitting = fitting_nodes(nodes, resolution.image.targets)
        found.append(
            gkmcache.PoolWarmth(
                name=pool,
                nodes=len(nodes),
                warm=len(warm & nodes.keys()),
                incompatible=len(nodes) - len(fitting),
            )
        )
    return found


def _counts(
    cache: "gkmcache.GKMCache", current: "Digest | None", nodes: "Mapping[NodeName, DigestsOnNode]"
) -> gkmcache.CacheCounts:
    distinct = {id(digests): digests for digests in nodes.values()}
    sums: Counter[str] = Counter()
    for key, times in Counter(map(id, nodes.values())).items():
        on_node = CacheOnNode(current=current, is_deleting=cache.is_deleting, digests=distinct[key])
        counts = on_node.counts()
        for name in gkmcache.CacheCounts.__struct_fields__:
            sums[name] += times * getattr(counts, name)
    return gkmcache.CacheCounts(**sums)

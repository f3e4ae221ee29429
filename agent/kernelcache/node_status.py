"""The status of a node object: from what the node knows, and what the object shows; pure.

Times move with what they are about only, so that an unchanged node writes nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from msgspec import structs

from api.kinds.gkmcachenode import CachedDigest, CachePod, GKMCacheNodeStatus
from api.names import GKM_GROUP, cache_node_finalizer
from api.status_conditions import format_time
from kernelcache.cache_conditions import DigestOnNode, DigestUse, cache_condition, state_on_node
from kernelcache.cache_counts import CacheOnNode, counts_of_node

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence

    from api.image_reference import Digest
    from api.kinds.gkmcachenode import GKMCacheNode, NodeGPUs
    from api.names import NodeName

_SUFFIX = "/finalizer"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DigestFacts:
    """One digest of a cache, as the node knows it."""

    is_extracted: bool
    size_bytes: int = 0
    pods: tuple[CachePod, ...] = ()
    """Volumes that use it."""
    pull_fault: str = ""
    removal_fault: str = ""
    progress: str = ""
    compatible: tuple[int, ...] | None = None
    """None where that is not known."""
    incompatible: tuple[int, ...] | None = None

    def on_node(self) -> DigestOnNode:
        return DigestOnNode(
            is_extracted=self.is_extracted,
            pods=len(self.pods),
            pull_fault=self.pull_fault,
            removal_fault=self.removal_fault,
            progress=self.progress,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """One cache, as the node knows it."""

    current: "Digest | None"
    is_deleting: bool
    digests: "Mapping[Digest, DigestFacts]"


def node_status(
    node: "NodeName",
    gpus: "Sequence[NodeGPUs]",
    caches: "Mapping[str, CacheFacts]",
    *,
    current: "GKMCacheNode | None",
    now: "dt.datetime",
) -> GKMCacheNodeStatus:
    """Return the status of the object of one namespace; `caches` are by name, each with a digest."""
    generation = current.metadata.generation if current is not None else 1
    found: dict[str, dict[str, CachedDigest]] = {}
    counted: list[CacheOnNode] = []
    for name, cache in sorted(caches.items()):
        before = current.digests_of(name) if current is not None else {}
        uses: dict[Digest, DigestUse] = {}
        for digest, facts in sorted(cache.digests.items()):
            state = state_on_node(facts.on_node(), is_current=digest == cache.current)
            uses[digest] = DigestUse(state=state, pods=len(facts.pods))
            last = before.get(digest)
            conditions = cache_condition(
                state, last.conditions if last is not None else None, generation=generation, now=now
            )
            entry = CachedDigest(
                compatible_gpus=_numbers(facts.compatible),
                incompatible_gpus=_numbers(facts.incompatible),
                conditions=conditions,
                volume_size=facts.size_bytes,
                pods=list(facts.pods) or None,
            )
            found.setdefault(name, {})[digest] = _timed(entry, last, now)
        counted.append(
            CacheOnNode(current=cache.current, is_deleting=cache.is_deleting, digests=uses)
        )
    return GKMCacheNodeStatus(
        node_name=node, counts=counts_of_node(counted), gpus=list(gpus), caches=found or None
    )


def finalizers_of(current: "Iterable[str]", caches: "Iterable[str]") -> list[str]:
    """Return an object's finalizers: those of the caches, and those that are not ours."""
    foreign = [item for item in current if not is_of_a_cache(item)]
    return [*foreign, *(cache_node_finalizer(name) for name in sorted(caches))]


def is_of_a_cache(finalizer: str) -> bool:
    return finalizer.startswith(f"{GKM_GROUP}.") and finalizer.endswith(_SUFFIX)


def _numbers(numbers: tuple[int, ...] | None) -> list[int] | None:
    return None if not numbers else list(numbers)


def _timed(cached: CachedDigest, last: CachedDigest | None, now: "dt.datetime") -> CachedDigest:
    if last is not None and structs.replace(cached, last_updated=last.last_updated) == last:
        return last
    return structs.replace(cached, last_updated=format_time(now))

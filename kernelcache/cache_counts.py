"""Numbers of nodes and pods, counted for each cache and digest.

GKM adds up the counts of whole node objects, so that each of several caches shows the sum of all.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gkmcache import CacheConditionType, CacheCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.image_reference import Digest
    from kernelcache.cache_conditions import DigestUse

_ERRORS: Final = frozenset({CacheConditionType.ERROR, CacheConditionType.UNLOAD_ERROR})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOnNode:
    """One cache on one node."""

    current: "Digest | None"
    """The digest that the cache names; None while its image is not resolved."""
    is_deleting: bool
    digests: "Mapping[Digest, DigestUse]"
    """Every digest of the cache that the node reports."""

    def counts(self) -> CacheCounts:
        """Return its counts: nodeCnt is 1, or 0 where the node reports no digest."""
        total = sum(use.pods for use in self.digests.values())
        present = self.digests.get(self.current) if self.current is not None else None
        running = present.pods if present is not None else 0
        is_extracted = present is not None and present.state.type is CacheConditionType.EXTRACTED
        return CacheCounts(
            nodes=int(bool(self.digests)),
            nodes_in_use=int(total > 0),
            nodes_not_in_use=int(is_extracted and not total),
            nodes_in_error=int(self._has_error()),
            pods_running=0 if self.is_deleting else running,
            pods_outdated=0 if self.is_deleting else total - running,
            pods_deleting=total if self.is_deleting else 0,
        )

    def _has_error(self) -> bool:
        return any(
            use.state.type in _ERRORS and use.counts_for_cache(is_current=digest == self.current)
            for digest, use in self.digests.items()
        )


def counts_of_cache(nodes: "Iterable[CacheOnNode]") -> CacheCounts:
    """Return the counts of one cache over all nodes."""
    sums: Counter[str] = Counter()
    for node in nodes:
        counts = node.counts()
        sums.update({name: getattr(counts, name) for name in CacheCounts.__struct_fields__})
    return CacheCounts(**sums)


def counts_of_node(caches: "Iterable[CacheOnNode]") -> CacheCounts:
    """Return the counts of a node object: numbers of its caches and of their pods; nodeCnt is 1."""
    return msgspec.structs.replace(counts_of_cache(caches), nodes=1)

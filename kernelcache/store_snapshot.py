"""What a node's content store is to have and what it has: the input of `kernelcache.store_plan`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.cache_name import CacheName
    from api.image_reference import Digest

_MAX_DOUBLINGS: Final = 32
"""Most doublings of the delay: beyond any limit of the delay; keeps the power small."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredCache:
    """A cache that the node is to have, and that fits one of its devices."""

    digest: "Digest"
    bytes: int
    """Bytes of its files: as they were when the node extracted it before, else as the image's label says; without
    a label
    those of its layer, which is compressed. A node that forgets what it extracted may displace it again."""
    is_awaited: bool = False
    """Whether a pod of the node waits for it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DigestOnDisk:
    """Extracted content."""

    bytes: int
    last_used_at: float
    """Wall-clock time of the last mount or unmount, or of the extraction: kept on disk, and compared with others of its kind only."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempts:
    """Attempts in a row to extract or to remove a digest that failed."""

    count: int
    at: float
    """Time of the last one."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """What the node may keep, and when it tries again."""

    quota_bytes: int | None = None
    """Bytes of all content; None is no limit."""
    grace_s: float = 300.0
    """How long content stays that nothing needs any more."""
    retry_base_s: float = 10.0
    """Delay after the first failure; each further one doubles it."""
    retry_max_s: float = 600.0

    def __post_init__(self) -> None:
        if min(self.grace_s, self.retry_base_s, self.retry_max_s, self.quota_bytes or 0) < 0:
            raise ValueError(f"times and the quota are no less than 0: {self}")

    def retry_at(self, failed: FailedAttempts) -> float:
        """Return when the next attempt is due."""
        doublings = min(max(failed.count - 1, 0), _MAX_DOUBLINGS)
        return failed.at + min(self.retry_base_s * 2.0**doublings, self.retry_max_s)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """What the node is to have, and what it has; times are of one monotonic clock, but for `last_used_at`."""

    desired: "Mapping[CacheName, DesiredCache]"
    stored: "Mapping[Digest, DigestOnDisk]"
    references: "Mapping[str, Digest]" = field(default_factory=dict)
    """Volume -> the digest that is mounted there."""
    extracting: "Mapping[Digest, int]" = field(default_factory=dict)
    """Digest -> the bytes that its extraction, which is under way, may need."""
    failures: "Mapping[Digest, FailedAttempts]" = field(default_factory=dict)
    """Digest -> its failures since the last success; they bind a digest no longer than its delay."""
    unneeded_since: "Mapping[Digest, float]" = field(default_factory=dict)
    """Times as `unneeded_since` returned it last."""
    free_bytes: int | None = None
    """What the disk has left for further content; None does not limit it."""

    def quota_bytes(self, limits: StoreLimits) -> int | None:
        """Return what all content may take: the quota, or less where the disk has not so much left; None is no limit."""
        if self.free_bytes is None:
            return limits.quota_bytes
        taken = sum(content.bytes for content in self.stored.values())
        taken += sum(self.extracting.values())
        limit = taken + max(self.free_bytes, 0)
        return limit if limits.quota_bytes is None else min(limit, limits.quota_bytes)


def unneeded_since(store: StoreSnapshot, now: float) -> "dict[Digest, float]":
    """Return since when nothing needs a digest that is stored; the next snapshot brings it along.

    A node that lost these times starts them again.
    """
    needed = {cache.digest for cache in store.desired.values()} | {*store.references.values()}
    return {
        digest: store.unneeded_since.get(digest, now)
        for digest in sorted(store.stored.keys() - needed)
    }

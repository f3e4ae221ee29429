"""The plan of a node's content store: which digests to extract, to remove, to keep, and for what the others wait.

Level-triggered: the same snapshot gives the same plan, and a snapshot in which the plan is carried out gives a plan
with nothing to do. Content is shared by digest, whichever caches name it.

Space is freed in this order: content that nothing needs any more, least recently used first, even within its grace
time; then, for a cache that a pod waits for, or where the quota is exceeded, content that caches name and no pod
uses. What pods use or wait for stays. A cache without a pod never displaces another cache's content, so that two
caches do not displace each other in turn.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from kernelcache.store_snapshot import unneeded_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.cache_name import CacheName
    from api.image_reference import Digest
    from kernelcache.store_snapshot import DesiredCache, StoreLimits, StoreSnapshot


_FACTOR_BEYOND: Final = 8
"""A layer without a label of its files' bytes is compressed."""
_LEAST_BEYOND_BYTES: Final = 1 << 30


class RemovalReason(Enum):
    """Why content is removed."""

    UNNEEDED = "no cache names it and no pod uses it"
    SPACE = "least recently used, to make room"
    QUOTA = "least recently used, as the quota is exceeded"


class ExtractionReason(Enum):
    """Why content is extracted."""

    POD_WAITS = "a pod waits for it"
    WARM = "the cache is kept warm on the node"


class KeepReason(Enum):
    """Why content stays."""

    IN_USE = "pods use it"
    DESIRED = "a cache names it"
    GRACE = "nothing needs it any more, and its grace time is not over"
    RETRY = "its removal failed, and the next attempt is not due"


class PostponeReason(Enum):
    """Why a desired digest is not extracted."""

    EXTRACTING = "its extraction is under way"
    RETRY = "its extraction failed, and the next attempt is not due"
    NO_SPACE = "it does not fit the quota, or the disk, beside what pods use and other caches name"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    digest: "Digest"
    reason: RemovalReason


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    digest: "Digest"
    caches: "tuple[CacheName, ...]"
    reason: ExtractionReason
    max_bytes: int | None
    """The extraction must fail beyond these, so that the quota holds; None is no limit."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    digest: "Digest"
    reason: KeepReason
    until: float | None = None
    """When it is judged again, where time decides."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Postpone:
    digest: "Digest"
    caches: "tuple[CacheName, ...]"
    reason: PostponeReason
    until: float | None = None
    missing_bytes: int = 0
    """Bytes that are missing where there is no space."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """One decision for each digest that is desired or stored: first the removals, then the extractions."""

    removals: tuple[Remove, ...]
    extractions: tuple[Extract, ...]
    kept: tuple[Keep, ...]
    postponed: tuple[Postpone, ...]
    next_at: float | None
    """Time of the next plan: before this time, nothing but an event changes the plan; None where time changes
    nothing."""


@final
@dataclass(frozen=True, slots=True)
class _Need:
    """A digest that caches name."""

    digest: "Digest"
    caches: "tuple[CacheName, ...]"
    bytes: int
    is_awaited: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """The snapshot, with everything that follows from it at one time."""

    store: "StoreSnapshot"
    needs: "Mapping[Digest, _Need]"
    """Ascending by digest."""
    in_use: "frozenset[Digest]"
    retry_at: "Mapping[Digest, float]"
    """Digests that failed, and whose next attempt is not due."""
    grace_ends: "Mapping[Digest, float]"
    """Content that nothing needs -> the end of its grace time."""
    now: float

    @classmethod
    def of(cls, store: "StoreSnapshot", limits: "StoreLimits", now: float) -> "_Survey":
        latest = now + limits.retry_max_s
        dues = {
            digest: min(limits.retry_at(failed), latest)
            for digest, failed in store.failures.items()
        }
        since = unneeded_since(store, now)
        return cls(
            store=store,
            needs=_needs(store.desired),
            in_use=frozenset(store.references.values()),
            retry_at={digest: at for digest, at in dues.items() if at > now},
            grace_ends={digest: at + limits.grace_s for digest, at in since.items()},
            now=now,
        )

    def removable(self) -> "list[Digest]":
        """Return content that no pod uses and that can be removed now, least recently used first."""
        stored = self.store.stored
        return sorted(
            stored.keys() - self.in_use - self.retry_at.keys(),
            key=lambda digest: (stored[digest].last_used_at, digest),
        )

    def is_expired(self, digest: "Digest") -> bool:
        return digest in self.grace_ends and self.grace_ends[digest] <= self.now

    def is_displaceable(self, digest: "Digest") -> bool:
        """Return whether it may go for a pod's sake, though a cache names it."""
        return digest in self.needs and not self.needs[digest].is_awaited

    def missing(self) -> "list[_Need]":
        """Return what can be extracted now."""
        absent = self.needs.keys() - self.store.stored.keys() - self.store.extracting.keys()
        return [self.needs[digest] for digest in sorted(absent - self.retry_at.keys())]

    def next_at(self) -> float | None:
        """Return the first time at which a grace time or the delay of a failed attempt ends."""
        digests = self.store.stored.keys() | self.needs.keys()
        times = [at for digest, at in self.retry_at.items() if digest in digests]
        times += [at for at in self.grace_ends.values() if at > self.now]
        return min(times, default=None)

    def size(self, digest: "Digest") -> int:
        return self.store.stored[digest].bytes


@final
@dataclass(slots=True, kw_only=True)
class _FreeSpace:
    """The bytes that are free; content leaves for the needs that are accepted."""

    free: int
    """Less than 0 beyond the quota."""
    survey: _Survey
    removals: list[Remove] = field(default_factory=list)
    accepted: list[_Need] = field(default_factory=list)
    shortage: "dict[Digest, int]" = field(default_factory=dict)
    """Digest without space -> the bytes that are missing."""

    def place(self, needs: "Sequence[_Need]", idle: "Sequence[Digest]") -> None:
        """Accept the needs that fit, in their order, once as much of the idle content as they require is gone."""
        available_bytes = self.free + sum(map(self.survey.size, idle))
        accepted: list[_Need] = []
        for need in needs:
            if need.bytes <= available_bytes:
                accepted.append(need)
                available_bytes -= need.bytes
            else:
                self.shortage[need.digest] = need.bytes - max(available_bytes, 0)
        self.accepted += accepted
        self.free -= sum(need.bytes for need in accepted)
        reason = RemovalReason.SPACE if accepted else RemovalReason.QUOTA
        for digest in self._removed_for_space(idle):
            self.removals.append(Remove(digest=digest, reason=reason))
            self.free += self.survey.size(digest)

    def _removed_for_space(self, idle: "Sequence[Digest]") -> "list[Digest]":
        """Return the first of the idle content that make up for what is missing, without any that is not required.

        The last ones are left out first: content that a cache names and that is displaced here would not fit
        afterwards, and so does not come back to displace other content in turn.
        """
        chosen: list[Digest] = []
        spare = self.free
        for digest in idle:
            if spare >= 0:
                break
            chosen.append(digest)
            spare += self.survey.size(digest)
        for digest in reversed(chosen):
            if self.survey.size(digest) <= spare:
                chosen.remove(digest)
                spare -= self.survey.size(digest)
        return chosen


def plan_store(store: "StoreSnapshot", limits: "StoreLimits", now: float) -> StorePlan:
    """Return what to do with every digest that is desired or stored."""
    survey = _Survey.of(store, limits, now)
    removable = survey.removable()
    expired = [digest for digest in removable if survey.is_expired(digest)]
    removals = [Remove(digest=digest, reason=RemovalReason.UNNEEDED) for digest in expired]
    quota = store.quota_bytes(limits)
    if quota is None:
        extractions = [_extract(need, None) for need in survey.missing()]
        shortage: Mapping[Digest, int] = {}
    else:
        space = _placed(survey, quota, removable)
        removals += space.removals
        # Each may exceed what its image says by an equal part of what is left, so that all together fit.
        share = max(space.free, 0) // max(len(space.accepted), 1)
        extractions = [
            _extract(need, need.bytes + min(share, _most_beyond(need))) for need in space.accepted
        ]
        shortage = space.shortage
    gone = {removal.digest for removal in removals}
    return StorePlan(
        removals=tuple(removals),
        extractions=tuple(extractions),
        kept=tuple(_kept(digest, survey) for digest in sorted(store.stored.keys() - gone)),
        postponed=tuple(_postponed(survey, shortage)),
        next_at=survey.next_at(),
    )


def _placed(survey: _Survey, quota: int, removable: "Sequence[Digest]") -> _FreeSpace:
    """Return the space that is left after pods' caches, and then the others, have got theirs."""
    stored = sum(
        content.bytes
        for digest, content in survey.store.stored.items()
        if digest not in removable or not survey.is_expired(digest)
    )
    space = _FreeSpace(free=quota - stored - sum(survey.store.extracting.values()), survey=survey)
    missing = survey.missing()
    in_grace = [
        digest
        for digest in removable
        if digest in survey.grace_ends and not survey.is_expired(digest)
    ]
    displaceable = [digest for digest in removable if survey.is_displaceable(digest)]
    space.place([need for need in missing if need.is_awaited], [*in_grace, *displaceable])
    gone = {removal.digest for removal in space.removals}
    space.place(
        [need for need in missing if not need.is_awaited],
        [digest for digest in in_grace if digest not in gone],
    )
    return space


def _most_beyond(need: _Need) -> int:
    """Return the bytes by which an extraction may exceed what its image says: it keeps them from others meanwhile."""
    return max(_FACTOR_BEYOND * need.bytes, _LEAST_BEYOND_BYTES)


def _needs(desired: "Mapping[CacheName, DesiredCache]") -> "dict[Digest, _Need]":
    names: dict[Digest, list[CacheName]] = {}
    for name, cache in sorted(desired.items()):
        names.setdefault(cache.digest, []).append(name)
    return {
        digest: _Need(
            digest,
            tuple(names[digest]),
            bytes=max(desired[name].bytes for name in names[digest]),
            is_awaited=any(desired[name].is_awaited for name in names[digest]),
        )
        for digest in sorted(names)
    }


def _extract(need: _Need, max_bytes: int | None) -> Extract:
    reason = ExtractionReason.POD_WAITS if need.is_awaited else ExtractionReason.WARM
    return Extract(digest=need.digest, caches=need.caches, reason=reason, max_bytes=max_bytes)


def _kept(digest: "Digest", survey: _Survey) -> Keep:
    if digest in survey.in_use:
        return Keep(digest=digest, reason=KeepReason.IN_USE)
    if digest in survey.needs:
        return Keep(digest=digest, reason=KeepReason.DESIRED)
    if survey.is_expired(digest):
        until = survey.retry_at[digest]
        return Keep(digest=digest, reason=KeepReason.RETRY, until=until)
    return Keep(digest=digest, reason=KeepReason.GRACE, until=survey.grace_ends[digest])


def _postponed(survey: _Survey, shortage: "Mapping[Digest, int]") -> "Iterable[Postpone]":
    store = survey.store
    for digest, need in survey.needs.items():
        if digest in store.stored:
            continue
        if digest in store.extracting:
            yield Postpone(digest=digest, caches=need.caches, reason=PostponeReason.EXTRACTING)
        elif digest in survey.retry_at:
            until = survey.retry_at[digest]
            yield Postpone(
                digest=digest, caches=need.caches, reason=PostponeReason.RETRY, until=until
            )
        elif digest in shortage:
            yield Postpone(
                digest=digest,
                caches=need.caches,
                reason=PostponeReason.NO_SPACE,
                missing_bytes=shortage[digest],
            )

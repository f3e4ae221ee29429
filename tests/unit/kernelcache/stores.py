"""Snapshots of a content store, and a world in which a plan is carried out."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from api.cache_name import CacheName
from api.image_reference import Digest
from kernelcache.store_plan import StorePlan
from kernelcache.store_snapshot import DesiredCache, DigestOnDisk, StoreSnapshot


def a_digest(letter: str) -> Digest:
    return Digest("sha256:" + letter * 64)


A, B, C, D, E, F = map(a_digest, "abcdef")
DIGESTS = (A, B, C, D, E, F)


def named(name: str, namespace: str = "ml") -> CacheName:
    return CacheName(namespace=namespace, name=name)


def a_desired_cache(digest: Digest, size: int = 10, *, is_awaited: bool = False) -> DesiredCache:
    return DesiredCache(digest=digest, bytes=size, is_awaited=is_awaited)


def on_disk(size: int = 10, *, used_at: float = 0.0) -> DigestOnDisk:
    return DigestOnDisk(bytes=size, last_used_at=used_at)


def a_store(
    desired: Iterable[DesiredCache] = (),
    stored: Mapping[Digest, DigestOnDisk] | None = None,
    *,
    mounted: Iterable[Digest] = (),
    **more: Any,
) -> StoreSnapshot:
    """Return a snapshot in which each wanted cache has another name, and each mount is another volume."""
    return StoreSnapshot(
        desired={named(f"cache-{number}"): cache for number, cache in enumerate(desired)},
        stored=dict(stored or {}),
        references={f"volume-{number}": digest for number, digest in enumerate(mounted)},
        **more,
    )


def is_idle(plan: StorePlan) -> bool:
    return not plan.removals and not plan.extractions


def carried_out(
    store: StoreSnapshot, plan: StorePlan, now: float, sizes: Mapping[Digest, int] | None = None
) -> StoreSnapshot:
    """Return the snapshot after the plan; an extraction has the bytes that its image said, or those in `sizes`."""
    claims: dict[Digest, int] = {}
    for cache in store.desired.values():
        claims[cache.digest] = max(cache.bytes, claims.get(cache.digest, 0))
    gone = {removal.digest for removal in plan.removals}
    stored = {digest: item for digest, item in store.stored.items() if digest not in gone}
    for extraction in plan.extractions:
        size = (sizes or {}).get(extraction.digest, claims[extraction.digest])
        stored[extraction.digest] = DigestOnDisk(bytes=size, last_used_at=now)
    return dataclasses.replace(store, stored=stored, desired=_remembered(store))


def _remembered(store: StoreSnapshot) -> dict[CacheName, DesiredCache]:
    """Return the desired caches with the bytes that the node knows from their extraction."""
    return {
        name: dataclasses.replace(cache, bytes=store.stored[cache.digest].bytes)
        if cache.digest in store.stored
        else cache
        for name, cache in store.desired.items()
    }


def bytes_of(store: StoreSnapshot) -> int:
    return sum(item.bytes for item in store.stored.values()) + sum(store.extracting.values())

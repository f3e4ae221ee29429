"""The driver's port `agent.csi.volume_source.VolumeSource`: what the node has for a volume, or why it has nothing yet.

A call in vain makes the node pull the cache for the pod that waits, whatever `spec.warm` says.
"""

import contextlib
from typing import TYPE_CHECKING, Final, final

import structlog
from cachetools import LRUCache

from agent.csi.volume_source import Absence, CacheVolume, NotThere
from agent.kernelcache.content.errors import StoreError
from agent.kernelcache.reported_caches import StoreState, progress_of
from telemetry.agent_metrics import CACHE_MOUNTS, CACHE_STARTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agent.csi.volume_request import PublishVolume
    from agent.kernelcache.cache_objects import CacheObjects
    from agent.kernelcache.store_reconciler import StoreReconciler
    from agent.kernelcache.volume_uses import VolumeUses
    from api.cache_name import CacheName
    from api.image_reference import Digest

REMEMBERED: Final = 4096
"""Volumes that were asked for in vain; a node has some hundred pods."""

_log = structlog.get_logger()


@final
class CacheVolumes:
    """Looks caches up for the driver; it never waits."""

    def __init__(
        self, reconciler: "StoreReconciler", objects: "CacheObjects", uses: "VolumeUses"
    ) -> None:
        self._reconciler = reconciler
        self._objects = objects
        self._uses = uses
        self._cold: LRUCache[str, None] = LRUCache(REMEMBERED)
        # ids of volumes that were asked for in vain
        for outcome in ("mounted", "not_ready", "refused", "failed"):
            CACHE_MOUNTS.labels(outcome)
        for warmth in ("warm", "cold"):
            CACHE_STARTS.labels(warmth)

    @contextlib.asynccontextmanager
    async def source_of(self, volume: "PublishVolume") -> "AsyncIterator[CacheVolume | NotThere]":
        """See the port."""
        found = self._find(volume.cache)
        if isinstance(found, NotThere):
            self._refuse(volume, found)
            yield found
            return
        content, digest = found
        with self._uses.mounting(volume, digest) as is_held:
            if not is_held:
                missing = NotThere(absence=Absence.NOT_READY, reason="its content is being removed")
                self._refuse(volume, missing)
                yield missing
                return
            try:
                yield content
            except BaseException:
                CACHE_MOUNTS.labels("failed").inc()
                raise
        CACHE_MOUNTS.labels("mounted").inc()
        is_cold = volume.volume in self._cold
        self._cold.pop(volume.volume, None)
        CACHE_STARTS.labels("cold" if is_cold else "warm").inc()
        self._reconciler.awaited.got(volume.cache)
        self._mark_used(digest)

    def released(self, target: "Path") -> None:
        """See the port."""
        for digest in self._uses.released(target):
            self._mark_used(digest)

    def _refuse(self, volume: "PublishVolume", found: NotThere) -> None:
        if found.absence is not Absence.NOT_READY:
            CACHE_MOUNTS.labels("refused").inc()
            return
        CACHE_MOUNTS.labels("not_ready").inc()
        self._cold[volume.volume] = None
        if self._reconciler.awaited.ask(volume.cache):
            self._reconciler.trigger()

    def _find(self, name: "CacheName") -> "NotThere | tuple[CacheVolume, Digest]":
        reconciler = self._reconciler
        if not reconciler.is_ready:
            return _not_ready("the node agent starts, and has not read the caches yet")
        cache = self._objects.get(name)
        if cache is None:
            return NotThere(absence=Absence.NO_SUCH_CACHE, reason="there is no such cache")
        if cache.is_deleting:
            return NotThere(absence=Absence.NO_SUCH_CACHE, reason="it is being deleted")
        decision = reconciler.decision_on(cache)
        if decision.incompatibility:
            return NotThere(absence=Absence.DOES_NOT_FIT, reason=decision.incompatibility)
        if decision.waits_for or decision.digest is None:
            return _not_ready(decision.waits_for)
        return self._content_of(decision.digest)

    def _content_of(self, digest: "Digest") -> "NotThere | tuple[CacheVolume, Digest]":
        reconciler, store = self._reconciler, self._reconciler.store.current
        if store is None:
            return _not_ready(
                reconciler.store.fault or "the node's store of caches is not open yet"
            )
        content = store.contents.get(digest)
        if content is None:
            return _not_ready(self._absence_of(digest))
        try:
            files = store.files_of(digest)
        except StoreError as error:
            reconciler.store.report_error(error)
            reconciler.trigger()
            return _not_ready(str(error))
        volume = CacheVolume(
            content=files, digest=digest, has_shared_objects=content.has_shared_objects
        )
        return volume, digest

    def _absence_of(self, digest: "Digest") -> str:
        reconciler = self._reconciler
        running = reconciler.extractions.running.get(digest)
        if running is not None:
            return running.text()
        if fault := reconciler.faults.get(digest):
            return f"it could not be extracted, and is tried again: {fault}"
        return progress_of(digest, StoreState(contents={}, names={}, plan=reconciler.plan))

    def _mark_used(self, digest: "Digest") -> None:
        """Note the time of use, by which the least recently used content is found; it may fail."""
        store = self._reconciler.store.current
        if store is None or digest not in store.contents:
            return
        try:
            store.mark_used(digest)
        except StoreError as error:
            self._reconciler.store.report_error(error)
            _log.warning("use of a cache not noted", digest=digest, error=str(error))


def _not_ready(reason: str) -> NotThere:
    return NotThere(absence=Absence.NOT_READY, reason=reason)

"""Extractions under way: a few at once, each in a task, with its progress; failures with their texts.

A digest may be named by several caches, with other registries and other secrets: they are tried in turn.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from agent.kernelcache.content.errors import KernelCacheError, StoreError, StoreFault
from agent.kernelcache.content.layer_limits import ExtractionLimits
from agent.kernelcache.layer_pull import PullProgress
from api.image_reference import ImageReferenceError
from api.text import MAX_MESSAGE_LENGTH, truncate
from kernelcache.image_format import CacheImageError
from oci.errors import RegistryError
from telemetry.agent_metrics import CACHE_EXTRACTION_DURATION, CACHE_EXTRACTIONS
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from agent.kernelcache.content.content_store import ContentStore
    from agent.kernelcache.layer_pull import OpenedLayer
    from api.clock import Clock
    from api.image_reference import Digest
    from api.kinds.gkmcache import GKMCache

MOST_AT_ONCE: Final = 3
MOST_WARM_AT_ONCE: Final = MOST_AT_ONCE - 1
"""Most extractions at once of caches that no pod waits for: one slot is kept for the others."""
TASK: Final = "agent.kernelcache.extraction"
_MIB: Final = 2**20
_EXPECTED: Final = (RegistryError, CacheImageError, ImageReferenceError, KernelCacheError)

_log = structlog.get_logger()


class LayerSource(Protocol):
    """Opens layers; `agent.kernelcache.layer_pull.LayerPull`."""

    async def open(
        self, cache: "GKMCache", digest: "Digest", progress: PullProgress
    ) -> "OpenedLayer":
        """Read what the image of this digest is; its errors are those of `LayerPull.open`."""
        ...


@final
@dataclass(slots=True, kw_only=True)
class RunningExtraction:
    """An extraction under way."""

    digest: "Digest"
    caches: "Sequence[GKMCache]"
    """Those that name the digest; all of them get the events of a failure."""
    max_bytes: int | None
    needs_bytes: int
    """What the quota counts for it meanwhile."""
    is_awaited: bool = False
    """Whether a pod waited for it as it started."""
    progress: PullProgress = field(default_factory=PullProgress)
    task: "asyncio.Task[None] | None" = None

    @property
    def namespace(self) -> str:
        """Whose slot it takes: that of the cache that is tried first; empty for a ClusterGKMCache."""
        return self.caches[0].cache_name.namespace

    def text(self) -> str:
        """Return how far it is, for a caller that asks now."""
        total = self.progress.total
        if not total:
            return "extracting, its image is being read"
        received = self.progress.received
        if total < 10 * _MIB:
            return f"extracting, {received // 1024} of {-(-total // 1024)} KiB"
        return f"extracting, {received // _MIB} of {-(-total // _MIB)} MiB"


@final
class Extractions:
    """The extractions of one process; `ended` is called with each outcome: empty, or why it failed."""

    def __init__(
        self, source: LayerSource, clock: "Clock", *, limits: ExtractionLimits | None = None
    ) -> None:
        self.running: Final[dict[Digest, RunningExtraction]] = {}
        self._source = source
        self._clock = clock
        self.limits: Final = limits or ExtractionLimits()
        for outcome in ("extracted", "failed", "cancelled"):
            CACHE_EXTRACTIONS.labels(outcome)
        TASK_FAILURES.labels(TASK)

    def has_capacity_for(self, extraction: RunningExtraction) -> bool:
        """Say whether it may start: a namespace has one slot for what its pods wait for, and one for all else."""
        running = self.running.values()
        limit = MOST_AT_ONCE if extraction.is_awaited else MOST_WARM_AT_ONCE
        if len(running) >= limit:
            return False
        same_priority = (other for other in running if other.is_awaited == extraction.is_awaited)
        return not any(other.namespace == extraction.namespace for other in same_priority)

    def start(
        self,
        extraction: RunningExtraction,
        *,
        store: "ContentStore",
        group: "asyncio.TaskGroup",
        ended: "Callable[[RunningExtraction, Exception | None], None]",
    ) -> None:
        """Extract in a task of the group; `ended` is called in it unless it is cancelled."""
        self.running[extraction.digest] = extraction
        extraction.task = group.create_task(
            self._run(extraction, store, ended), name="caches.extraction"
        )

    def cancel(self, digest: "Digest") -> None:
        """End an extraction that nothing needs any more."""
        task = self.running[digest].task
        if task is not None:
            task.cancel()

    async def _run(
        self,
        extraction: RunningExtraction,
        store: "ContentStore",
        ended: "Callable[[RunningExtraction, Exception | None], None]",
    ) -> None:
        began = self._clock.monotonic()
        outcome, error = "cancelled", None
        try:
            await self._extract(extraction, store)
            outcome = "extracted"
            CACHE_EXTRACTION_DURATION.observe(self._clock.monotonic() - began)
        except _EXPECTED as cause:
            outcome, error = "failed", cause
        except Exception as unknown:  # noqa: BLE001  # of one cache; the others go on
            TASK_FAILURES.labels(TASK).inc()
            _log.error("extraction failed", digest=extraction.digest, exc_info=unknown)
            outcome, error = (
                "failed",
                KernelCacheError("internal error of the node agent: see its log"),
            )
        finally:
            CACHE_EXTRACTIONS.labels(outcome).inc()
            del self.running[extraction.digest]
        ended(extraction, error)

    async def _extract(self, extraction: RunningExtraction, store: "ContentStore") -> None:
        failure: Exception | None = None
        for cache in extraction.caches:
            try:
                await self._extract_for(cache, extraction, store)
            except StoreError:
                raise
            except _EXPECTED as error:
                # Also of the layer: a registry that sends something else must not stand in the way of another one.
                failure = failure or error
            else:
                return
        if failure is not None:
            raise failure

    async def _extract_for(
        self, cache: "GKMCache", extraction: RunningExtraction, store: "ContentStore"
    ) -> None:
        layer = await self._source.open(cache, extraction.digest, extraction.progress)
        limits = replace(self.limits, disk_bytes=extraction.max_bytes)
        try:
            content = await store.add(extraction.digest, layer.image.type, layer, limits=limits)
        except StoreError as error:
            if error.fault is not StoreFault.FULL:
                raise
            raise StoreError(error.fault, f"{cache.cache_name}: {error}") from error
        _log.info(
            "cache extracted",
            cache=str(cache.cache_name),
            digest=extraction.digest,
            bytes=content.size_bytes,
            files=content.files,
        )


def fault_text(error: Exception) -> str:
    """Return a failure for a condition; texts of registries are cut."""
    return truncate(" ".join(str(error).split()), MAX_MESSAGE_LENGTH // 2)

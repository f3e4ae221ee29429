"""Events of a cache: its image is resolved to another digest, and it is in error. Each accompanies its write."""

from typing import TYPE_CHECKING, Final

from api.kinds.gkmcache import CacheConditionType
from kernelcache.cache_conditions import shown_state
from kube.event_recorder import ObjectReference
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from api.kinds.gkmcache import GKMCache, GKMCacheStatus
    from kube.event_recorder import EventRecorder
    from kube.resources import Resource

ACTION: Final = "ServeCache"


def record_cache(
    recorder: "EventRecorder",
    resource: "Resource",
    cache: "GKMCache",
    *,
    before: "GKMCacheStatus",
    after: "GKMCacheStatus",
) -> None:
    """Record what a status that was just written says for the first time."""
    regarding = ObjectReference.to(resource, cache.metadata)
    if after.resolved_digest and after.resolved_digest != before.resolved_digest:
        instead = (
            f" in place of {before.resolved_digest}: pods that mount it keep it until they end"
            if before.resolved_digest
            else ""
        )
        note = f"image {cache.spec.image} is {after.resolved_digest}{instead}"
        recorder.normal(regarding, EventReason.KERNEL_CACHE_RESOLVED, note, action=ACTION)
    state = shown_state(after.conditions)
    was = shown_state(before.conditions)
    if state.type is CacheConditionType.ERROR and was.type is not CacheConditionType.ERROR:
        recorder.warning(regarding, EventReason.KERNEL_CACHE_FAILED, state.message, action=ACTION)

"""Gauges of kernel caches: exported by the leader, sums over all caches kept by differences."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from api.kinds.gkmcache import CacheConditionType
from api.status_conditions import find_condition, parse_time
from kernelcache.cache_conditions import reported_state
from telemetry.kernel_cache_metrics import CACHES, NODES_OF_CACHES, OUTDATED_SINCE, PODS_OF_CACHES

if TYPE_CHECKING:
    from api.cache_name import CacheName
    from api.kinds.gkmcache import GKMCacheStatus


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """What the gauges say of one cache."""

    state: str
    nodes: dict[str, int]
    pods: dict[str, int]
    outdated_since: float | None


@final
class CacheGauges:
    """Sets the gauges, one cache at a time."""

    def __init__(self) -> None:
        self._current: dict[CacheName, _Published] = {}
        forget_kernel_caches()

    def show(self, name: "CacheName", status: "GKMCacheStatus") -> None:
        before = self._current.get(name)
        now = _read(status, before)
        self._replace(name, before, now)
        self._current[name] = now

    def forget(self, name: "CacheName") -> None:
        """Drop a cache that is gone."""
        before = self._current.pop(name, None)
        self._replace(name, before, None)

    def _replace(
        self, name: "CacheName", before: _Published | None, now: _Published | None
    ) -> None:
        for item, sign in ((before, -1), (now, 1)):
            if item is None:
                continue
            CACHES.labels(item.state).inc(sign)
            for state, count in item.nodes.items():
                NODES_OF_CACHES.labels(state).inc(sign * count)
            for state, count in item.pods.items():
                PODS_OF_CACHES.labels(state).inc(sign * count)
        since = now.outdated_since if now is not None else None
        if since is not None:
            OUTDATED_SINCE.labels(str(name)).set(since)
        elif before is not None and before.outdated_since is not None:
            OUTDATED_SINCE.remove(str(name))


def forget_kernel_caches() -> None:
    """Show no cache: of a replica that does not lead."""
    for gauge in (CACHES, NODES_OF_CACHES, PODS_OF_CACHES, OUTDATED_SINCE):
        gauge.clear()
    # Shown as 0 from the start, so that a rule sees the first.
    for state in CacheConditionType:
        CACHES.labels(state.value)


def _read(status: "GKMCacheStatus", before: _Published | None) -> _Published:
    counts = status.counts
    return _Published(
        state=reported_state(status.conditions).type.value,
        nodes={
            "in_use": counts.nodes_in_use,
            "not_in_use": counts.nodes_not_in_use,
            "error": counts.nodes_in_error,
        },
        pods={
            "running": counts.pods_running,
            "outdated": counts.pods_outdated,
            "deleting": counts.pods_deleting,
        },
        outdated_since=_outdated_since(status, before) if counts.pods_outdated else None,
    )


def _outdated_since(status: "GKMCacheStatus", before: _Published | None) -> float | None:
    """Return since when: an error that hides the condition Outdated does not begin the time again."""
    if before is not None and before.outdated_since is not None:
        return before.outdated_since
    conditions = status.conditions or ()
    current = find_condition(conditions, CacheConditionType.OUTDATED) or next(
        iter(conditions), None
    )
    since = parse_time(current.last_transition_time) if current is not None else None
    return since.timestamp() if since is not None else None

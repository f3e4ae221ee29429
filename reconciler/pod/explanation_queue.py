"""The queue of waiting pods: which of them are explained now, and which say that they wait though they wait no more.

A pure state machine: `due` takes the waiting pods and the time; its caller reports with `explained`, `wrote`, `failed`
and `refused` what became of each. A pod is explained once it has waited for `AFTER_S`, and then only when its pool has
changed or `RESYNC_S` have passed: what an explanation depends on besides its pool, as other pools and devices without a
pool, wakes none. The pod that was explained longest ago is the first.

The condition itself is the memory: the time of its last write is in it, so that another leader, too, keeps `PAUSE_S`.
"""

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.status_conditions import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from api.clock import Instant
    from api.names import PodUid
    from pool.model import PodFacts

AFTER_S: Final = 5.0
"""kube-scheduler binds a pod that fits within it; a shorter wait needs no reason."""
PAUSE_S: Final = 30.0
"""Seconds between two writes of one pod."""
STAMP_S: Final = 1.0
"""The time in a condition is in whole seconds, rounded down."""
AGAIN_S: Final = 10.0
"""Seconds between two explanations of one pod: a busy pool changes several times a second."""
MOST_DUE: Final = 500
"""Pods that have a turn at once: few of them are written, and the others have theirs at the next scan."""
REFUSED_FOR_S: Final = 300.0
"""Pause before a pod is written again whose write the API server refuses, as by a webhook of others."""
RESYNC_S: Final = 120.0
"""An explanation is that old at most."""


@dataclass(slots=True)
class _QueuedPod:
    waits_since: float | None
    """None: it does not wait any more."""
    not_before: float
    explained_at: float = -math.inf
    is_explained: bool = False
    """Its condition says what it was last explained with."""

    def is_due(self, now: float, changed_at: float) -> bool:
        if self.waits_since is None or now - self.waits_since < AFTER_S or now < self.not_before:
            return False
        is_new = changed_at >= self.explained_at or now - self.explained_at >= RESYNC_S
        return is_new or not self.is_explained


@final
class ExplanationQueue:
    """Pods that wait for units, and those that do not any more and whose condition is still False."""

    def __init__(self) -> None:
        self._pods: dict[PodUid, _QueuedPod] = {}
        self._changed_at: dict[str, float] = {}
        # resource -> when units of it, or pods that wait for it, changed

    def __len__(self) -> int:
        return len(self._pods)

    def note_change(self, resource: str, now: float) -> None:
        """Take note that what pods of the resource wait for has changed."""
        self._changed_at[resource] = now

    def due(self, waiting: "Iterable[PodFacts]", now: "Instant") -> "list[PodFacts]":
        """Return the first `MOST_DUE` pods to explain now, in their order.

        `waiting` has all that wait: others wait no more.
        """
        due: list[tuple[float, int, str, str, PodFacts]] = []
        seen: set[PodUid] = set()
        for pod in waiting:
            seen.add(pod.uid)
            queued = self._pods.get(pod.uid)
            if queued is None:
                queued = self._pods[pod.uid] = _QueuedPod(now.monotonic, _not_before(pod, now))
            elif queued.waits_since is None:
                queued.waits_since, queued.is_explained = now.monotonic, False
            if queued.is_due(now.monotonic, self._changed_at.get(pod.demand.resource, -math.inf)):
                due.append((queued.explained_at, -pod.priority, pod.created, pod.uid, pod))
        for uid in self._pods.keys() - seen:
            self._pods[uid].waits_since = None
        return [item[-1] for item in heapq.nsmallest(MOST_DUE, due)]

    def stale(
        self, pod_of: "Callable[[PodUid], PodFacts | None]", now: "Instant"
    ) -> "list[PodFacts]":
        """Return the pods that do not wait and whose condition says that they do; forget those that are right."""
        stale: list[PodFacts] = []
        for uid, queued in list(self._pods.items()):
            if queued.waits_since is not None:
                continue
            pod = pod_of(uid)
            if pod is None:
                del self._pods[uid]
            elif now.monotonic < queued.not_before:
                pass  # the watch may not show its last write yet
            elif has_wait_condition(pod):
                stale.append(pod)
            else:
                del self._pods[uid]
        return stale

    def adopt(self, pod: "PodFacts", now: "Instant") -> None:
        """Take over a pod whose condition is False, whether it waits or not."""
        if has_wait_condition(pod) and pod.uid not in self._pods:
            self._pods[pod.uid] = _QueuedPod(None, _not_before(pod, now))

    def explained(self, uid: "PodUid", now: float, *, as_of: float) -> None:
        """Take note that the condition says already what was found at `as_of`, or that nothing is to be said."""
        queued = self._explained(uid, as_of, is_explained=True)
        queued.not_before = max(queued.not_before, now + AGAIN_S)

    def wrote(self, uid: "PodUid", now: float, *, as_of: float) -> None:
        """Take note that what was found at `as_of` was written."""
        self._explained(uid, as_of, is_explained=True).not_before = now + PAUSE_S

    def failed(self, uid: "PodUid", now: float) -> None:
        """Take note that it is not known whether the condition was written."""
        self._explained(uid, now, is_explained=False).not_before = now + PAUSE_S

    def refused(self, uid: "PodUid", now: float) -> None:
        """Take note that the API server refuses the write."""
        self._explained(uid, now, is_explained=False).not_before = now + REFUSED_FOR_S

    def _explained(self, uid: "PodUid", as_of: float, *, is_explained: bool) -> _QueuedPod:
        queued = self._pods[uid]
        queued.explained_at, queued.is_explained = as_of, is_explained
        return queued


def has_wait_condition(pod: "PodFacts") -> bool:
    return pod.units_condition is not None and not pod.units_condition.is_true


def _not_before(pod: "PodFacts", now: "Instant") -> float:
    """Return when the pod may be written again, by the time in its condition; a time to come counts as now."""
    current = pod.units_condition
    written = parse_time(current.written) if current is not None else None
    if written is None:
        return now.monotonic
    ago_s = max(0.0, (now.utc - written).total_seconds())
    return now.monotonic + max(0.0, PAUSE_S + STAMP_S - ago_s)

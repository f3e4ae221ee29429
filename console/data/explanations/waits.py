"""Explanations of waiting pods with remedies, computed in steps; the pods explained longest ago come first.

Equivalent pods share an explanation. It is computed again when something of the pod's pool has changed, and
otherwise once a minute. Together they take at most `SHARE` of the time.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from api.names import owner_of
from kube.errors import one_line
from pool.facts import pool_facts
from pool.what_if.explain import explain, explanation_steps
from pool.what_if.question import WaitQuestion
from pool.what_if.usable_pools import tolerations_by_pool, usable_pools
from telemetry.explanation_texts import wait_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from api.kinds.gpupool import GPUPool
    from api.names import PodUid
    from console.data.explanations.joinable_devices import JoinableDevices
    from console.data.state.cluster import ClusterState
    from console.data.state.watched_pods import WatchedPod
    from pool.model import Demand, PoolFacts
    from pool.what_if.explanation import AnyRemedy, Explanation

    _EquivalenceKey = tuple[Demand, bool, int, object, str, str, object]
    """What pods have in common that share an explanation; the id of a selection, which equal pods share."""

SHARE: Final = 0.1
"""Share of the time."""
MAX_BATCH_S: Final = 0.005
"""Most seconds of one batch, but for the step that exceeds it: the first one of a pool of 5,000 nodes takes some 20 ms."""
IDLE_S: Final = 0.25
"""Pause where no pod has a turn."""
MIN_INTERVAL_S: Final = 2.0
"""Seconds between two explanations of one pod: a busy pool changes several times a second."""
RESYNC_S: Final = 60.0
"""An explanation is that old at most: what it depends on besides the pod's pool wakes none."""
MAX_CHECKED: Final = 500
"""Pods that one step may check."""
MAX_REMEDY_NODES: Final = 256
"""Most nodes of a pool in which remedies are looked for at once, where a viewer waits for the answer: some 20 ms."""

_log = structlog.get_logger()


@final
class ExplainedWait(msgspec.Struct, frozen=True):
    """Why a pod waits."""

    reason: str
    message: str
    remedies: "tuple[AnyRemedy, ...]"
    at: float
    """Clock.monotonic() of the moment that it is about."""


@dataclass(frozen=True, slots=True)
class _PendingExplanation:
    """An explanation that is under way."""

    pod: "WatchedPod"
    key: "_EquivalenceKey"
    pool: "PoolFacts | None"
    steps: "Generator[None, None, Explanation]"
    at: float


@final
class WaitExplanations:
    """Explanations of pods that wait, of a cluster whose pods are all known."""

    def __init__(
        self,
        cluster: "ClusterState",
        joinable: "JoinableDevices",
        monotonic: "Callable[[], float]",
    ) -> None:
        self._cluster = cluster
        self._joinable = joinable
        self._monotonic = monotonic
        self._found: dict[PodUid, ExplainedWait] = {}
        self._updated: set[PodUid] = set()
        # explained since they were taken
        self._explained_at: dict[PodUid, float] = {}
        self._queue: OrderedDict[PodUid, None] = OrderedDict()
        # those that were explained longest ago first
        self._changed_at: dict[str, float] = {}
        # resource -> when something of its pool changed
        self._pending: _PendingExplanation | None = None

    def get(self, uid: "PodUid") -> ExplainedWait | None:
        return self._found.get(uid)

    def take_updated(self) -> "set[PodUid]":
        """Return the pods that were explained since the last call."""
        updated, self._updated = self._updated, set()
        return updated

    def add(self, uid: "PodUid") -> None:
        """Let a pod that begins to wait have the next turn."""
        if uid not in self._queue:
            self._queue[uid] = None
            self._queue.move_to_end(uid, last=False)

    def discard(self, uid: "PodUid") -> None:
        """Forget a pod that does not wait any more."""
        self._queue.pop(uid, None)
        self._found.pop(uid, None)
        self._explained_at.pop(uid, None)

    def note_change(self, resource: str) -> None:
        """Let pods that wait for the resource be explained again."""
        self._changed_at[resource] = self._monotonic()

    def explain_due(self, is_viewed: "Callable[[str], bool]") -> float:
        """Explain pods whose turn it is, for a moment; return how long to pause.

        Args:
            is_viewed: whether a viewer has the pods of a namespace open: others keep their turns.
        """
        began = self._monotonic()
        spent_s = 0.0
        while spent_s < MAX_BATCH_S:
            self._pending = self._pending or self._start_next(is_viewed)
            if self._pending is None:
                return IDLE_S
            self._advance(self._pending)
            spent_s = self._monotonic() - began
        return spent_s * (1 / SHARE - 1)

    def explain(self, seen: "WatchedPod", *, most_nodes: int, is_quick: bool) -> "Explanation":
        """Explain a pod now.

        Args:
            seen: the pod.
            most_nodes: nodes whose holders are reported.
            is_quick: whether to leave out remedies in a large pool, where they take more than a moment.
        """
        question = self._question(seen, self._monotonic(), most_nodes=most_nodes)
        reader, index = self._cluster.reader, self._cluster.index
        pool = index.pool_of(seen.facts.demand.resource)
        is_large = (
            pool is not None and len(index.state(pool.name).devices_by_node) > MAX_REMEDY_NODES
        )
        return explain(reader, index, question, with_remedies=not (is_quick and is_large))

    def _question(self, seen: "WatchedPod", now: float, *, most_nodes: int) -> WaitQuestion:
        cluster, pod = self._cluster, seen.facts
        own = cluster.index.pool_of(pod.demand.resource)
        pool = cluster.catalog.pools.get(owner_of(own.name)) if own is not None else None
        usable = self._usable_pools(seen)
        return WaitQuestion(
            pod=pod,
            other_pools=[facts for pool in usable for facts in pool_facts(pool).served],
            tolerated=tolerations_by_pool(usable),
            joinable=self._joinable.of(pool, now) if pool is not None else (),
            now=now,
            most_nodes=most_nodes,
        )

    def _start_next(self, is_viewed: "Callable[[str], bool]") -> _PendingExplanation | None:
        """Start to explain the first pod that has a turn."""
        now = self._monotonic()
        for _ in range(min(MAX_CHECKED, len(self._queue))):
            uid = next(iter(self._queue))
            self._queue.move_to_end(uid)
            seen = self._cluster.pods.get(uid)
            if seen is not None and is_viewed(seen.facts.namespace) and self._is_due(seen, now):
                return self._start(seen, now)
        return None

    def _start(self, seen: "WatchedPod", now: float) -> _PendingExplanation:
        cluster = self._cluster
        question = self._question(seen, now, most_nodes=0)
        steps = explanation_steps(cluster.reader, cluster.index, question)
        pool = cluster.index.pool_of(seen.facts.demand.resource)
        return _PendingExplanation(seen, self._equivalence_key(seen), pool, steps, now)

    def _advance(self, pending: _PendingExplanation) -> None:
        pod = pending.pod.facts
        if self._cluster.index.pool_of(pod.demand.resource) != pending.pool:
            self._pending = None  # the pool changed meanwhile
            return
        try:
            next(pending.steps)
        except StopIteration as end:
            self._finish(pending, explained_wait(end.value, pending.at))
        except Exception as error:  # noqa: BLE001  # the per-item boundary: logged, and tried again later
            _log.error("pod could not be explained", pod=pod.ref, error=one_line(str(error)))
            self._explained_at[pod.uid] = pending.at
            self._pending = None

    def _finish(self, pending: _PendingExplanation, found: ExplainedWait) -> None:
        """Keep an explanation for its pod, and for those that are alike and have a turn soon."""
        self._pending = None
        uids = [pending.pod.facts.uid]
        for uid, _ in zip(self._queue, range(MAX_CHECKED), strict=False):
            seen = self._cluster.pods.get(uid)
            if (
                seen is not None
                and self._is_due(seen, pending.at)
                and self._equivalence_key(seen) == pending.key
            ):
                uids.append(uid)
        for uid in uids:
            if uid in self._queue:
                self._queue.move_to_end(uid)
                self._found[uid] = found
                self._explained_at[uid] = found.at
                self._updated.add(uid)

    def _usable_pools(self, seen: "WatchedPod") -> "list[GPUPool]":
        return usable_pools(
            self._cluster.catalog.pools.values(),
            seen.facts,
            service_account=seen.service_account,
            largest_free=lambda pool: self._cluster.index.state(pool.name).largest_free(),
        )

    def _is_due(self, seen: "WatchedPod", now: float) -> bool:
        explained_at = self._explained_at.get(seen.facts.uid)
        if explained_at is None:
            return True
        changed_at = self._changed_at.get(seen.facts.demand.resource)
        is_changed = changed_at is not None and changed_at >= explained_at
        return (
            is_changed and now - explained_at >= MIN_INTERVAL_S
        ) or now - explained_at >= RESYNC_S

    def _equivalence_key(self, seen: "WatchedPod") -> "_EquivalenceKey":
        pod, peers = seen.facts, self._cluster.index.peers
        return (
            pod.demand,
            pod.awaits_capacity,
            id(pod.selection),
            pod.requests,
            pod.namespace,
            seen.service_account,
            () if pod.peer is None else tuple(peers.keeping_away(pod.peer)),
        )


def explained_wait(explanation: "Explanation", at: float) -> ExplainedWait:
    return ExplainedWait(
        explanation.reason.value, wait_summary(explanation), explanation.remedies, at
    )

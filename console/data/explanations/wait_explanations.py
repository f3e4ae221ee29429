"""Why pods wait, with what would help: found out a few at a time, those that were explained longest ago first.

Pods that are alike share what is found at one moment. An explanation is looked for again when something of the pod's pool
has changed, and otherwise once a minute. All of them take `SHARE` of the time at most.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import msgspec

from pool.explanation.explain import explain
from pool.explanation.question import WaitQuestion
from pool.explanation.usable_pools import usable_pools
from pool.facts import pool_facts
from telemetry.explanation_texts import wait_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from api.kinds.gpupool import GPUPool
    from api.names import PodUid
    from console.data.explanations.joinable_devices import JoinableDevices
    from console.data.state.cluster_state import ClusterState
    from console.data.state.watched_pods import WatchedPod
    from pool.explanation.explanation import AnyRemedy, Explanation
    from pool.model import Demand, PodSelection

    _Like = tuple[Demand, bool, int, object, str, str]
    """What pods have in common that share an explanation; the id of a selection, which equal pods share."""

SHARE: Final = 0.1
"""Of the time."""
MOST_S: Final = 0.01
"""In one go, but for the explanation that exceeds it."""
AGAIN_S: Final = 2.0
"""Between two explanations of one pod: a busy pool changes several times a second."""
RESYNC_S: Final = 60.0
"""An explanation is that old at most: what it depends on besides the pod's pool wakes none."""
MOST_LOOKED_AT: Final = 500
"""Pods in one go."""


@final
class ExplainedWait(msgspec.Struct, frozen=True):
    """Why a pod waits."""

    reason: str
    message: str
    remedies: "tuple[AnyRemedy, ...]"
    at: float
    """Clock.monotonic() of the moment that it is about."""


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
        self._turns: OrderedDict[PodUid, None] = OrderedDict()
        # those that were explained longest ago first
        self._changed_at: dict[str, float] = {}
        # resource -> when something of its pool changed
        self._not_before = 0.0

    def get(self, uid: "PodUid") -> ExplainedWait | None:
        return self._found.get(uid)

    def add(self, uid: "PodUid") -> None:
        """Let a pod that begins to wait have the next turn."""
        if uid not in self._turns:
            self._turns[uid] = None
            self._turns.move_to_end(uid, last=False)

    def discard(self, uid: "PodUid") -> None:
        """Forget a pod that does not wait any more."""
        self._turns.pop(uid, None)
        self._found.pop(uid, None)

    def note_change(self, resource: str) -> None:
        """Let pods that wait for the resource be explained again."""
        self._changed_at[resource] = self._monotonic()

    def refresh(self, sees: "Callable[[str], bool]") -> "Collection[PodUid]":
        """Explain pods whose turn it is; return them.

        Args:
            sees: whether somebody looks at the pods of a namespace: others keep their turns.
        """
        began = self._monotonic()
        if began < self._not_before:
            return ()
        shared: dict[_Like, ExplainedWait] = {}
        explained: list[PodUid] = []
        for _ in range(min(MOST_LOOKED_AT, len(self._turns))):
            uid = next(iter(self._turns))
            self._turns.move_to_end(uid)
            seen = self._cluster.pods.get(uid)
            if seen is None or not sees(seen.facts.namespace):
                continue
            if not self._is_due(uid, seen, began):
                continue
            like = _like(seen)
            found = shared.get(like)
            if found is None:
                if shared and self._monotonic() - began >= MOST_S:
                    self._turns.move_to_end(uid, last=False)
                    break
                found = shared[like] = self._explained(seen)
            self._found[uid] = found
            explained.append(uid)
        ended = self._monotonic()
        self._not_before = ended + (ended - began) * (1 / SHARE - 1)
        return explained

    def explain(self, seen: "WatchedPod", *, most_nodes: int = 0) -> "Explanation":
        """Explain a pod now, with the holders of so many nodes."""
        cluster, pod = self._cluster, seen.facts
        now = self._monotonic()
        own = cluster.index.pool_of(pod.demand.resource)
        pool = cluster.catalog.pools.get(own.name) if own is not None else None
        question = WaitQuestion(
            pod=pod,
            other_pools=[pool_facts(one) for one in self._usable_pools(seen)],
            joinable=self._joinable.of(pool, now) if pool is not None else (),
            now=now,
            most_nodes=most_nodes,
        )
        return explain(cluster.reader, cluster.index, question)

    def _explained(self, seen: "WatchedPod") -> ExplainedWait:
        at = self._monotonic()
        return explained_wait(self.explain(seen), at)

    def _usable_pools(self, seen: "WatchedPod") -> "list[GPUPool]":
        return usable_pools(
            self._cluster.catalog.pools.values(),
            seen.facts,
            service_account=seen.service_account,
            largest_free=lambda pool: self._cluster.index.state(pool.name).largest_free(),
        )

    def _is_due(self, uid: "PodUid", seen: "WatchedPod", now: float) -> bool:
        known = self._found.get(uid)
        if known is None:
            return True
        age_s = now - known.at
        changed_at = self._changed_at.get(seen.facts.demand.resource)
        is_news = changed_at is not None and changed_at >= known.at
        return (is_news and age_s >= AGAIN_S) or age_s >= RESYNC_S


def explained_wait(explanation: "Explanation", at: float) -> ExplainedWait:
    return ExplainedWait(
        explanation.reason.value, wait_summary(explanation), explanation.remedies, at
    )


def _like(seen: "WatchedPod") -> "_Like":
    pod = seen.facts
    selection: PodSelection | None = pod.selection
    return (
        pod.demand,
        pod.awaits_capacity,
        id(selection),
        pod.requests,
        pod.namespace,
        seen.service_account,
    )

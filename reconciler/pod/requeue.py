"""`pod.waking`: makes kube-scheduler try a waiting pod again when it would fit now.

kube-scheduler retries a pod that the extender rejected when a bound pod or a node changes. It cannot see the end of
a reservation, and it misses, for up to five minutes, the end of a victim that was gone before it asked for the
deletion (kubernetes#141694; so in 1.36.3). A pod that has waited while it fits is patched with an annotation, which
moves it out of the unschedulable queue (measured: bound within 0.1 s). The patch is repeated with growing pauses and
a limit, since something else may keep the pod from the nodes that fit now. A further node that fits is a new chance:
the pod is patched like a new one. A pod that awaits capacity has its turns and is not patched: kube-scheduler ignores
it until its units are reserved and its gate is removed (`pool.capacity`).
"""

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from api.names import WOKEN_ANNOTATION
from kube.errors import Invalid, KubeError, NotFound
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import TaskSpec
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.cache_name import CacheName
    from api.clock import Instant
    from api.names import NodeName, PodUid, PoolName
    from kube.client import KubeClient
    from pool.allocation_reader import AllocationReader
    from pool.index.reader import IndexReader
    from pool.model import PodFacts, PoolFacts
    from pool.placement.unit_request import UnitRequest

    _Request = tuple[UnitRequest, tuple[CacheName, ...]]
    _Fits = dict[tuple[PoolName, _Request], frozenset[NodeName]]

RBAC: Final = (PolicyRule(resources=("pods",), verbs=("patch",)),)

PERIOD_S: Final = 0.5
FITS_FOR_S: Final = 1.0
"""kube-scheduler binds a pod that it requeues itself in a few milliseconds; after this time it did not."""
FIRST_PAUSE_S: Final = 10.0
MAX_TOUCHES: Final = 5

_log = structlog.get_logger()


@dataclass(slots=True)
class _Candidate:
    """A waiting pod that would fit."""

    touch_at: float
    touches: int = 0
    touched_at: float = math.inf
    has_new_chance: bool = False
    """A node more fits than when it was touched."""

    def has_declined(self, now: float) -> bool:
        """Say whether it was requeued and not bound: something else than units keeps it waiting."""
        return now - self.touched_at >= FITS_FOR_S

    def is_ready_again(self, now: float) -> bool:
        """Say whether it may be touched for a new chance: not at every change of a busy pool."""
        return self.has_new_chance and now - self.touched_at >= FIRST_PAUSE_S

    def give_back_touch(self) -> None:
        """Undo a touch that did not reach the pod; the next one keeps its time."""
        self.touches -= 1
        self.touched_at = math.inf


@final
class SchedulerRequeue:
    """Touches waiting pods that would fit."""

    def __init__(
        self,
        client: "KubeClient",
        index: "IndexReader",
        now: "Callable[[], Instant]",
        *,
        reader: "AllocationReader",
    ) -> None:
        self._client = client
        self._index = index
        self._reader = reader
        self._now = now
        self._candidates: dict[PodUid, _Candidate] = {}
        self._fits: _Fits = {}
        # pool, request of a waiting pod -> the nodes that fitted it in the last pass
        TASK_FAILURES.labels("pod.waking")

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            for pod in self.due():
                await self._write_wake_annotation(pod)

    def due(self) -> "list[PodFacts]":
        """Return the pods to touch now; each free unit counts for one pod only.

        A pod that was requeued and not bound keeps its turn, and its units go to the next. A pod whose units go
        to another keeps its count, so that a queue of pods that are never bound is not touched for ever.
        """
        now = self._now().monotonic
        fitting: dict[PodUid, PodFacts] = {}
        passed_over: set[PodUid] = set()
        index = self._index
        before, self._fits = self._fits, {}
        for pool in index.pools():
            if pool != index.pool_of(pool.resource):
                continue
            for pod, has_turn in self._fitting(pool, before, now):
                if has_turn:
                    fitting[pod.uid] = pod
                else:
                    passed_over.add(pod.uid)
        for uid in self._candidates.keys() - fitting.keys() - passed_over:
            del self._candidates[uid]
        due: list[PodFacts] = []
        for uid, pod in fitting.items():
            candidate = self._candidates.setdefault(uid, _Candidate(now + FITS_FOR_S))
            if candidate.touch_at <= now and candidate.touches < MAX_TOUCHES:
                candidate.touches += 1
                candidate.touched_at = now
                candidate.has_new_chance = False
                candidate.touch_at = now + FIRST_PAUSE_S * 2 ** (candidate.touches - 1)
                if not pod.awaits_capacity:
                    due.append(pod)
        return due

    def _fitting(
        self, pool: "PoolFacts", before: "_Fits", now: float
    ) -> "Iterator[tuple[PodFacts, bool]]":
        """Yield the pods that fit, and those known as candidates that would if it were their turn.

        Of those that have a new chance as many start over as there are units left to the others, the
        one that was touched longest ago first: none of them takes a turn from a pod that had none yet.
        """
        waiting = self._reader.pods.waiting(pool.resource)
        if not waiting:
            return
        state = self._index.state(pool.name)
        left = available = state.capacity().available
        more: dict[_Request, bool] = {}
        again: list[tuple[float, PodFacts]] = []
        for pod in waiting:
            units, candidate = pod.demand.units, self._candidates.get(pod.uid)
            view = self._index.view(pool.name, pod.demand)
            request, fits = (view.request, pod.demand.caches), view.scores
            if units > (left if candidate is None else available) or not fits:
                continue
            has_turn = units <= left
            if request not in more:
                self._fits[pool.name, request] = frozenset(fits)
                more[request] = not fits.keys() <= before.get((pool.name, request), frozenset())
            if more[request] and candidate is not None:
                candidate.has_new_chance = True
            if candidate is None or not candidate.has_declined(now):
                left -= units if has_turn else 0
            elif candidate.is_ready_again(now):
                again.append((candidate.touched_at, pod))
            yield pod, has_turn
        for _, pod in sorted(again, key=lambda item: item[0]):
            if pod.demand.units <= left:
                left -= pod.demand.units
                del self._candidates[pod.uid]

    async def _write_wake_annotation(self, pod: "PodFacts") -> None:
        stamp = self._now().utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        patch = {"metadata": {"uid": pod.uid, "annotations": {WOKEN_ANNOTATION: stamp}}}
        try:
            await self._client.merge_patch(PODS, patch, name=pod.name, namespace=pod.namespace)
        except (NotFound, Invalid):
            # Gone, or another pod has its name by now: a uid that differs is refused as immutable.
            return
        except KubeError as error:
            self._candidates[pod.uid].give_back_touch()
            TASK_FAILURES.labels("pod.waking").inc()
            _log.warning("pod could not be requeued", pod=pod.ref, error=str(error))
        else:
            _log.info("pod requeued: its units are free", pod=pod.ref, units=pod.demand.units)


SPEC: Final = TaskSpec(
    name="pod.waking",
    rbac=RBAC,
    build=lambda context: (
        SchedulerRequeue(context.client, context.index, context.now, reader=context.reader).run
    ),
)

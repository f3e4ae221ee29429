"""`pod.waking`: makes kube-scheduler try a waiting pod again when it would fit now.

kube-scheduler retries a pod that we refused when a bound pod or a node changes, but it cannot see a
hold end. A pod that has been waiting and fitting for a while is touched with an annotation, which
takes it out of the unschedulable queue (measured: bound within 0.1 s). Touched again with growing
pauses and not for ever, since something else than us may keep it from being scheduled.
"""

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from api.names import WOKEN_ANNOTATION
from kube.errors import Invalid, KubeError, NotFound
from kube.resources import PODS
from manifests.rbac import Rule
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.names import PodUid
    from kube.client import KubeClient
    from pool.books import Books
    from pool.model import Instant, PodFacts, PoolFacts

RBAC: Final = (Rule(resources=("pods",), verbs=("patch",)),)

PERIOD_S: Final = 0.5
FITS_FOR_S: Final = 1.0
"""kube-scheduler binds a pod that it wakes itself in a few milliseconds; after this long it did not."""
FIRST_PAUSE_S: Final = 10.0
MAX_TOUCHES: Final = 5

_log = structlog.get_logger()


@dataclass(slots=True)
class _Sleeper:
    """A waiting pod that would fit."""

    touch_at: float
    touches: int = 0
    touched_at: float = math.inf

    def has_declined(self, now: float) -> bool:
        """Say whether it was woken and did not come: something else than units keeps it waiting."""
        return now - self.touched_at >= FITS_FOR_S

    def give_back_touch(self) -> None:
        """Undo a touch that did not reach the pod; the next one keeps its time."""
        self.touches -= 1
        self.touched_at = math.inf


@final
class Waking:
    """Touches waiting pods that would fit."""

    def __init__(self, client: "KubeClient", books: "Books", now: "Callable[[], Instant]") -> None:
        self._client = client
        self._books = books
        self._now = now
        self._sleepers: dict[PodUid, _Sleeper] = {}
        TASK_FAILURES.labels("pod.waking")

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            for pod in self.due():
                await self._touch(pod)

    def due(self) -> "list[PodFacts]":
        """Return the pods to touch now; what is free is promised to one pod only.

        A pod that was woken and did not come keeps its turn, and what it left goes to the next. One
        whose units are promised to another keeps its count, so that a queue of pods that never come
        is not touched for ever, each one as if it were new.
        """
        now = self._now().monotonic
        fitting: dict[PodUid, PodFacts] = {}
        passed_over: set[PodUid] = set()
        for pool in self._books.index.pools():
            for pod, has_turn in self._fitting(pool, now):
                if has_turn:
                    fitting[pod.uid] = pod
                else:
                    passed_over.add(pod.uid)
        for uid in self._sleepers.keys() - fitting.keys() - passed_over:
            del self._sleepers[uid]
        due: list[PodFacts] = []
        for uid, pod in fitting.items():
            sleeper = self._sleepers.setdefault(uid, _Sleeper(now + FITS_FOR_S))
            if sleeper.touch_at <= now and sleeper.touches < MAX_TOUCHES:
                sleeper.touches += 1
                sleeper.touched_at = now
                sleeper.touch_at = now + FIRST_PAUSE_S * 2 ** (sleeper.touches - 1)
                due.append(pod)
        return due

    def _fitting(self, pool: "PoolFacts", now: float) -> "Iterator[tuple[PodFacts, bool]]":
        """Yield the pods that fit, and those known as sleepers that would if it were their turn."""
        waiting = self._books.waiting(pool.resource)
        if not waiting:
            return
        state = self._books.index.state(pool.name)
        left = available = state.capacity().available
        for pod in waiting:
            sleeper = self._sleepers.get(pod.uid)
            limit = left if sleeper is None else available
            if pod.demand.units > limit or not state.view(pod.demand.units).scores:
                continue
            has_turn = pod.demand.units <= left
            if has_turn and (sleeper is None or not sleeper.has_declined(now)):
                left -= pod.demand.units
            yield pod, has_turn

    async def _touch(self, pod: "PodFacts") -> None:
        stamp = self._now().utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        patch = {"metadata": {"uid": pod.uid, "annotations": {WOKEN_ANNOTATION: stamp}}}
        try:
            await self._client.merge_patch(PODS, patch, name=pod.name, namespace=pod.namespace)
        except (NotFound, Invalid):
            # Gone, or another pod has its name by now: a uid that differs is refused as immutable.
            return
        except KubeError as error:
            self._sleepers[pod.uid].give_back_touch()
            TASK_FAILURES.labels("pod.waking").inc()
            _log.warning("pod could not be woken", pod=pod.ref, error=str(error))
        else:
            _log.info("pod woken: its units are free", pod=pod.ref, units=pod.demand.units)

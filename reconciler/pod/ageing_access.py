"""`pod.access`: reports workloads whose inherited access ends, from half of its validity on.

Its end is seen by the next pod alone, perhaps at a drain a year later. So pods that run are asked, whose annotations
say until when their like are admitted; a workload without pods is not seen. Each signature is reported once a term.
"""

import asyncio
import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Final, NoReturn, final

from api.names import PoolName
from api.text import truncate
from kube.batches import steps
from kube.event_recorder import ObjectReference
from kube.resources import PODS
from reconciler.controller_spec import TaskSpec
from telemetry.metrics import AGEING_ACCESS
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.annotations import AccessNote
    from api.clock import Instant
    from kube.event_recorder import EventRecorder
    from pool.allocation_reader import AllocationReader
    from pool.catalog import Catalog
    from pool.model import PodFacts

    _Signature = tuple[str, AccessNote]

PERIOD_S: Final = 10.0
_PODS_A_TURN: Final = 2_000


@final
class AgeingAccess:
    """Sets the gauge, and emits an Event for each workload."""

    def __init__(
        self,
        reader: "AllocationReader",
        catalog: "Catalog",
        recorder: "EventRecorder",
        *,
        now: "Callable[[], Instant]",
    ) -> None:
        self._reader = reader
        self._catalog = catalog
        self._recorder = recorder
        self._now = now
        self._notified: set[_Signature] = set()

    async def run(self) -> NoReturn:
        """Work until cancelled."""
        while True:
            await self._check()
            await asyncio.sleep(PERIOD_S)

    async def _check(self) -> None:
        now = self._now().utc
        # namespace and signature -> the first pod by name
        ageing: dict[_Signature, PodFacts] = {}
        for pods in steps(list(self._reader.pods.all()), _PODS_A_TURN):
            for pod in pods:
                if pod.access is not None and self._is_ageing(pod, pod.access, now):
                    key = pod.namespace, pod.access
                    ageing[key] = min(ageing.get(key, pod), pod, key=lambda item: item.name)
            await asyncio.sleep(0)
        counts = Counter(note.pool for _, note in ageing)
        for pool in self._catalog.pools:
            AGEING_ACCESS.labels(pool).set(counts[pool])
        for (_, note), pod in ageing.items():
            if (pod.namespace, note) not in self._notified:
                self._notify(pod, note)
        self._notified = set(ageing)

    def _is_ageing(self, pod: "PodFacts", note: "AccessNote", now: dt.datetime) -> bool:
        """Say whether to tell of it; users may write the annotation, so that of a pool which the pod does not use says nothing."""
        pool = self._catalog.pools.get(PoolName(note.pool))
        return (
            pool is not None and pool.resource_name == pod.demand.resource and now >= note.ages_at
        )

    def _notify(self, pod: "PodFacts", note: "AccessNote") -> None:
        self._recorder.warning(
            ObjectReference.to(PODS, pod),
            EventReason.ACCESS_AGEING,
            f"new pods of {truncate(note.workload)} are refused in pool {note.pool} from"
            f" {note.until:%Y-%m-%d %H:%M} UTC on: the access that {truncate(note.user)} gave it ends; a member of the"
            " pool's groups renews it by `kubectl rollout restart`, or by applying it again with --server-side",
            action="CheckAccess",
        )


SPEC: Final = TaskSpec(
    name="pod.access",
    build=lambda context: (
        AgeingAccess(context.reader, context.catalog, context.recorder, now=context.now).run
    ),
)

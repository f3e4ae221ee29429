"""`pod.nominating`: while many pods wait, nominates for each the node of its reservation.

kube-scheduler tries the node in `status.nominatedNodeName` first, alone: a filter of one name and no
prioritize, in place of its own plugins and two extender calls for hundreds of nodes. The reservation's node is
the one that prioritize would rank first, so that pods are bound to the same nodes, faster.
It is a hint. If the node does not fit any more, the same attempt goes on with all nodes, and an attempt without
a fit clears the nomination; no clean-up is needed.

The hint costs a write, and comes too late for a pod that is scheduled soon: nothing is nominated while the
queue is short, and never its head, the pods that are scheduled within a second or two. In a burst of creations,
where the API server is the bottleneck, the whole queue is its head.
Design: docs/design/0003-nominating.md.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from kube.backoff import Backoff
from kube.errors import Invalid, KubeError, NotFound
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from pool.model import PodPhase
from pool.reservations.reservation import ReservationPhase
from reconciler.controller_spec import TaskSpec
from reconciler.runtime.concurrent_writes import write_until_failure
from telemetry.metrics import PODS_NOMINATED, TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from api.names import NodeName, PodUid
    from kube.client import KubeClient
    from pool.allocation_reader import AllocationReader
    from pool.model import PodFacts

RBAC: Final = (PolicyRule(resources=("pods/status",), verbs=("patch",)),)

PERIOD_S: Final = 0.05
PERIOD_A_POD_S: Final = 50e-6
"""Added for each waiting pod: a pass takes about 1 us a pod, and so 2 % of the time at most."""
HEAD: Final = 32
"""Pods at the head of the queue that are left alone however slowly it moves. At 300 pods/s, more than
kube-scheduler takes off in a period and the time of one write."""
AHEAD_S: Final = 2.0
"""Seconds: the pods that leave the queue within them, by its recent pace, belong to its head, too. A pod that is scheduled so soon gains little, and
the write costs kube-apiserver, which may be the bottleneck, as much as it saves the rest."""
WRITERS: Final = 8
"""Writes at a time."""
BATCH: Final = 500
"""Pods between two passes over the queue, which moves on while we write."""
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 30.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pod, and the node of its reservation."""

    pod: "PodFacts"
    node: "NodeName"


@final
class NominationWriter:
    """Nominates waiting pods that have a reservation."""

    def __init__(
        self,
        client: "KubeClient",
        reader: "AllocationReader",
        now: "Callable[[], Instant]",
        *,
        head: int = HEAD,
    ) -> None:
        """Take the stores; `head` is the least number of pods at the head of the queue that are not nominated."""
        self._client = client
        self._reader = reader
        self._now = now
        self._head = head
        self._seen: frozenset[PodUid] = frozenset()
        # the queue when it was last read
        self._departures: deque[tuple[float, int]] = deque()
        # when pods were seen to have left it, and how many
        self._sent: set[PodUid] = set()
        # pods that were nominated, or that could not be and need not be tried again
        TASK_FAILURES.labels("pod.nominating")

    async def run(self) -> None:
        """Work until cancelled."""
        backoff = Backoff(base_s=FIRST_BACKOFF_S, cap_s=MAX_BACKOFF_S, jitter=0)
        while True:
            if await self.nominate(self.due()):
                backoff.succeed()
                await asyncio.sleep(PERIOD_S + PERIOD_A_POD_S * len(self._seen))
            else:
                await asyncio.sleep(backoff.fail())

    def due(self) -> list[Nomination]:
        """Return the pods to nominate now, the last of kube-scheduler's queue first.

        From its head, where kube-scheduler takes pods off, we would race it and lose.
        """
        queued = self._queued()
        uids = frozenset(pod.uid for pod, _ in queued)
        self._sent &= uids
        head = max(self._head, self._record_departures(uids))
        found = [
            Nomination(pod, node)
            for pod, node in reversed(queued[head:])
            if pod.nominated_node is None and pod.uid not in self._sent
        ]
        return found[:BATCH]

    def _record_departures(self, uids: "frozenset[PodUid]") -> int:
        """Store the queued pods; return how many left the queue within `AHEAD_S`."""
        now = self._now().monotonic
        self._departures.append((now, len(self._seen - uids)))
        while self._departures[0][0] <= now - AHEAD_S:
            self._departures.popleft()
        self._seen = uids
        return sum(count for _, count in self._departures)

    def _queued(self) -> "list[tuple[PodFacts, NodeName]]":
        """Return the pods with a reservation whose binding has not begun, and its node."""
        queued: list[tuple[PodFacts, NodeName]] = []
        for reservation in self._reader.ledger.all():
            if reservation.phase is not ReservationPhase.CONFIRMED or reservation.uid is None:
                continue
            pod = self._reader.pods.get(reservation.uid)
            if pod is None or reservation.node is None or pod.phase is not PodPhase.PENDING:
                continue
            if self._reader.leaves_node(reservation):
                continue
            if not pod.awaits_capacity:  # still gated: kube-scheduler does not take it
                queued.append((pod, reservation.node))
        # Stable: pods of one priority stay in the order of their admission.
        queued.sort(key=_priority_order)
        return queued

    async def nominate(self, due: list[Nomination]) -> bool:
        """Write the nominations; say whether all were written. One that is no longer due is skipped."""

        async def write(nomination: Nomination) -> None:
            try:
                await self._write(nomination)
            except KubeError as error:
                TASK_FAILURES.labels("pod.nominating").inc()
                _log.warning("pod could not be nominated", pod=nomination.pod.ref, error=str(error))
                raise

        return not await write_until_failure(due, write, at_a_time=min(WRITERS, len(due)))

    async def _write(self, nomination: Nomination) -> None:
        pod = nomination.pod
        held = self._reader.ledger.of_pod(pod.uid)
        if held is None or not held.phase.is_uncommitted or held.node != nomination.node:
            return  # it was scheduled, or its reservation ended, while others were written
        patch = [
            # A status write ignores a uid in the object; another pod of that name is not meant.
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "add", "path": "/status/nominatedNodeName", "value": nomination.node},
        ]
        try:
            await self._client.json_patch(
                PODS, patch, name=pod.name, namespace=pod.namespace, subresource="status"
            )
        except (NotFound, Invalid):
            self._sent.add(pod.uid)  # it is gone, which the watch is about to show
            return
        self._sent.add(pod.uid)
        PODS_NOMINATED.inc()


def _priority_order(queued: "tuple[PodFacts, NodeName]") -> int:
    return -queued[0].priority


SPEC: Final = TaskSpec(
    name="pod.nominating",
    rbac=RBAC,
    is_enabled=lambda settings: settings.is_nominating,
    build=lambda context: NominationWriter(context.client, context.reader, context.now).run,
)

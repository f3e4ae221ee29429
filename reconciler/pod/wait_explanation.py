"""`pod.explanation`: says on each pod that waits for units why it does, in a condition and in an Event.

The condition `api.names.UNITS_CONDITION` is False with the reason of the wait, and True once the pod does not wait for
units any more. kube-scheduler ignores it: a change of a status moves no pod in its queues. The Event is recorded with
each new reason, and not with new figures.

Nothing waits for it, so it takes little: a pass a second, which writes `WRITES_A_ROUND` times at most, scans of the
waiting pods that become rarer as these become more, and `SHARE` of the time for explanations. Pods that are alike share one. Which pods have a turn is
`reconciler.pod.explanation_queue`'s.
"""

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, final

import structlog

from api.names import RESOURCE_PREFIX, UNITS_CONDITION
from api.status_conditions import format_time
from api.text import MAX_MESSAGE_LENGTH, truncate, units
from kube.backoff import Backoff
from kube.batches import STEP, steps
from kube.errors import ApiError, Conflict, Invalid, KubeError, one_line
from kube.event_recorder import ObjectReference
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from pool.model import PodPhase, UnitsCondition
from reconciler.controller_spec import TaskSpec
from reconciler.pod.explanation_queue import ExplanationQueue, has_wait_condition
from reconciler.pod.shared_explanations import SharedExplanations
from reconciler.pool.index_changes import index_changes
from reconciler.runtime.status import StatusWriter
from telemetry.conditions import PodUnitsAvailable
from telemetry.metrics import TASK_FAILURES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable
    from enum import Enum

    from api.names import PodUid, PoolName
    from pool.model import PodFacts
    from pool.reservations.reservation import Reservation
    from reconciler.controller_spec import ControllerContext
    from reconciler.pod.shared_explanations import WaitText


def next_condition(
    current: UnitsCondition | None,
    *,
    is_true: bool,
    reason: "Enum",
    message: str,
    now: "dt.datetime",
) -> UnitsCondition | None:
    """Return the condition to write; None where the current one says the same, or is True and stays so."""
    message = truncate(message, MAX_MESSAGE_LENGTH)
    written = transitioned = format_time(now)
    if current is not None and current.is_true is is_true:
        if is_true or (current.reason, current.message) == (reason.value, message):
            return None
        transitioned = current.transitioned or written
    return UnitsCondition(is_true, reason.value, message, transitioned, written)


def condition_body(condition: UnitsCondition) -> dict[str, Any]:
    """Return it as it is in the status of a pod; `lastProbeTime` is the time of the write."""
    return {
        "type": UNITS_CONDITION,
        "status": "True" if condition.is_true else "False",
        "reason": condition.reason,
        "message": condition.message,
        "lastProbeTime": condition.written,
        "lastTransitionTime": condition.transitioned,
    }


def satisfied(
    pod: "PodFacts", reservation: "Reservation | None"
) -> "tuple[PodUnitsAvailable, str] | None":
    """Return reason and message of a pod that does not wait any more; None where it has no units."""
    requested = f"{units(pod.demand.units)} of {pod.demand.resource}"
    if pod.phase is not PodPhase.PENDING and pod.node is not None:
        return PodUnitsAvailable.ALLOCATED, f"{requested} are allocated on node {pod.node}"
    if reservation is not None and reservation.has_units:
        node = reservation.node
        return PodUnitsAvailable.RESERVED, f"{requested} are reserved on node {node}"
    return None


FIELD_MANAGER: Final = "gpu-control-plane/pod-explanation"
RBAC: Final = (PolicyRule(resources=("pods/status",), verbs=("patch",)),)
TASK: Final = "pod.explanation"
ACTION: Final = "Explaining"
"""Action of the Event."""

PERIOD_S: Final = 1.0
PERIOD_A_POD_S: Final = 250e-6
"""Seconds between two scans, for each waiting pod: a scan takes about 2 us a pod, and so 1 % of the time at most."""
WRITES_A_ROUND: Final = 10
"""Most writes in a period of a second at least, hence the most writes in a second."""
WRITES_A_POD: Final = 2
"""The condition and the Event."""
SHARE: Final = 0.01
"""Share of the time, for explanations: one for a pool of 1,000 nodes takes some 10 ms, and is used for a second
then."""
MOST_EXPLAINED_S: Final = 0.02
"""Time for explanations of one moment, but for the one that exceeds it."""
ADOPT_EVERY_S: Final = 60.0
"""Seconds between two searches of all pods for conditions that another leader left."""
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0

_log = structlog.get_logger()


class PodExplainer(Protocol):
    """Explains pods as things are when it is asked first about their like."""

    def has_explained(self, pod: "PodFacts") -> bool:
        """Return whether it was asked about such a pod already, so that the answer costs nothing."""

    def explain(self, pod: "PodFacts") -> "WaitText":
        """Return why a waiting pod waits; it changes nothing."""


@dataclass(slots=True)
class _Round:
    """Explanations of one moment, used until their time is `SHARE` of what has passed since."""

    explainer: PodExplainer
    as_of: float
    explained_s: float = 0.0

    @property
    def is_spent(self) -> bool:
        return self.explained_s >= MOST_EXPLAINED_S

    def is_over(self, now: float) -> bool:
        return now - self.as_of >= self.explained_s / SHARE


@final
class WaitExplanation:
    """Writes conditions and Events of waiting pods."""

    def __init__(
        self, context: "ControllerContext", explainer: "Callable[[], PodExplainer]"
    ) -> None:
        """Take the context, and what makes an explainer."""
        self._reader = context.reader
        self._now = context.now
        self._recorder = context.recorder
        self._explainer = explainer
        self._writer = StatusWriter(context.client, PODS, FIELD_MANAGER)
        self._queue = ExplanationQueue()
        self._due: deque[PodUid] = deque()
        # what the last scan found and no pass has come to yet
        self._round: _Round | None = None
        self._writes_left = 0
        self._scan_at = -math.inf
        self._adopt_at = -math.inf
        TASK_FAILURES.labels(TASK)

    async def run(self) -> NoReturn:
        """Work until cancelled."""
        backoff = Backoff(base_s=FIRST_BACKOFF_S, cap_s=MAX_BACKOFF_S, jitter=0)
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await self.explain()
            except KubeError as error:
                delay_s = backoff.fail()
                _log.warning(
                    "waiting pods are not explained", retry_in_s=delay_s, error=_text(error)
                )
                await asyncio.sleep(delay_s)
            else:
                backoff.succeed()

    def note_change(self, resource: str) -> None:
        """Have the pods that wait for the resource explained again."""
        self._queue.note_change(resource, self._now().monotonic)

    async def explain(self) -> None:
        """Explain pods whose turn it is, and write what they do not say yet.

        Raises:
            KubeError: the API server does not answer; the other pods keep their turns.
        """
        await self._adopt()
        self._scan()
        now = self._now().monotonic
        if self._round is None or self._round.is_over(now):
            self._round = _Round(self._explainer(), now)
        self._writes_left = WRITES_A_ROUND
        for count in range(len(self._due)):
            if self._writes_left < WRITES_A_POD:
                return
            await self._take_turn(self._due.popleft(), self._round)
            if count % STEP == STEP - 1:
                await asyncio.sleep(0)

    def _scan(self) -> None:
        """Find the pods that have a turn: first those that are wrong, then those that wait."""
        now = self._now()
        if now.monotonic < self._scan_at:
            return
        self._scan_at = now.monotonic + PERIOD_A_POD_S * len(self._queue)
        due = self._queue.due(self._reader.pods.all_waiting(), now)
        stale = self._queue.stale(self._reader.pods.get, now)
        self._due = deque(pod.uid for pod in (*stale, *due))

    async def _adopt(self) -> None:
        """Find the conditions that another leader left, also those that it wrote while this one began."""
        if self._now().monotonic < self._adopt_at:
            return
        self._adopt_at = self._now().monotonic + ADOPT_EVERY_S
        for item in steps(list(self._reader.pods.all()), 1_000):
            for pod in item:
                self._queue.adopt(pod, self._now())
            await asyncio.sleep(0)

    async def _take_turn(self, uid: "PodUid", round_: _Round) -> None:
        pod = self._reader.pods.get(uid)
        if pod is None:
            return
        if self._waits(pod):
            if round_.is_spent and not round_.explainer.has_explained(pod):
                self._due.append(uid)
            else:
                await self._explain(pod, round_)
            return
        text = satisfied(pod, self._reader.ledger.of_pod(uid))
        if text is not None and has_wait_condition(pod):
            await self._write_condition(pod, *text, is_true=True, as_of=self._now().monotonic)

    async def _explain(self, pod: "PodFacts", round_: _Round) -> None:
        text = self._text_of(pod, round_)
        if text is None or (text.is_available and not has_wait_condition(pod)):
            self._queue.explained(pod.uid, self._now().monotonic, as_of=round_.as_of)
            return
        await self._write_condition(
            pod, text.reason, text.message, is_true=text.is_available, as_of=round_.as_of
        )

    def _text_of(self, pod: "PodFacts", round_: _Round) -> "WaitText | None":
        began = self._now().monotonic
        try:
            return round_.explainer.explain(pod)
        except Exception as error:  # noqa: BLE001  # the per-item boundary: counted, tried again later
            TASK_FAILURES.labels(TASK).inc()
            _log.error("pod could not be explained", pod=pod.ref, error=_text(error))
            return None
        finally:
            round_.explained_s += self._now().monotonic - began

    def _waits(self, pod: "PodFacts") -> bool:
        reservation = self._reader.ledger.of_pod(pod.uid)
        has_units = reservation is not None and reservation.has_units
        return pod.phase is PodPhase.PENDING and not has_units

    async def _write_condition(
        self, pod: "PodFacts", reason: "Enum", message: str, *, is_true: bool, as_of: float
    ) -> None:
        now, current = self._now(), pod.units_condition
        condition = next_condition(
            current, is_true=is_true, reason=reason, message=message, now=now.utc
        )
        if condition is None:
            self._queue.explained(pod.uid, now.monotonic, as_of=as_of)
            return
        self._writes_left -= 1
        if not await self._write(pod, condition, as_of) or is_true:
            return
        if current is None or current.is_true or current.reason != condition.reason:
            self._writes_left -= 1
            self._recorder.warning(
                ObjectReference.to(PODS, pod),
                EventReason.POD_WAITS,
                condition.message,
                action=ACTION,
            )
            _log.info("pod waits", pod=pod.ref, reason=condition.reason)

    async def _write(self, pod: "PodFacts", condition: "UnitsCondition", as_of: float) -> bool:
        """Write a condition; return whether the pod has it now."""
        try:
            written = await self._writer.apply(
                pod.name,
                {"conditions": [condition_body(condition)]},
                namespace=pod.namespace,
                uid=pod.uid,
            )
        except (Conflict, Invalid):
            written = None  # another pod has its name by now, which the watch is about to show
        except KubeError as error:
            TASK_FAILURES.labels(TASK).inc()
            if error.is_transient or not isinstance(error, ApiError):
                self._queue.failed(pod.uid, self._now().monotonic)
                raise
            self._queue.refused(pod.uid, self._now().monotonic)
            _log.warning("pod could not be explained", pod=pod.ref, error=_text(error))
            return False
        self._queue.wrote(pod.uid, self._now().monotonic, as_of=as_of)
        return written is not None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(str(error))}"


def wait_explanation(context: "ControllerContext") -> WaitExplanation:
    """Return it for the term; it learns which pools change."""
    explanation = WaitExplanation(
        context, lambda: SharedExplanations(context.reader, context.index, context.now)
    )
    changes = context.shared(index_changes)

    def changed(name: "PoolName") -> None:
        pool = context.index.pool(name)
        for resource in pool.resources if pool is not None else (f"{RESOURCE_PREFIX}{name}",):
            explanation.note_change(resource)

    context.follow(changes.pools, changed)
    context.follow(changes.waiting, changed)
    return explanation


SPEC: Final = TaskSpec(name=TASK, rbac=RBAC, build=lambda context: wait_explanation(context).run)

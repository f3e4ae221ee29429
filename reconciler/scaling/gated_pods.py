"""Writes into pods that await capacity: the reservation into their annotation, and the removal of their gate.

Each write is idempotent, and names the uid, so that another pod of the same name is left alone. A pod that has only
our gate never gets another one: the API server lets gates be removed, not added. So the whole list is removed, and
a write whose answer was lost can be repeated.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from api.names import RESERVATION_ANNOTATION
from kube.errors import ApiError, Invalid, NotFound
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from pool.model import PodPhase
from pool.reservations.reservation import ReservationPhase
from pool.reservations.restore import note_of
from reconciler.runtime.concurrent_writes import write_in_order
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.annotations import ReservationNote
    from api.clock import Instant
    from api.names import PodUid
    from kube.client import KubeClient
    from pool.allocation_reader import AllocationReader
    from pool.model import PodFacts
    from pool.reservations.reservation import Reservation
    from reconciler.controller_spec import ControllerContext

RBAC: Final = (PolicyRule(resources=("pods",), verbs=("patch",)),)

WRITERS: Final = 8
"""Writes at a time: 50 pods lose their gates within a second where a write takes 100 ms."""
REFUSED_FOR_S: Final = 60.0
"""Pause before a pod that may not be written is tried again; others get the units meanwhile."""
TASK: Final = "pool.capacity"
"""Label value in the metric of failures."""
SAME_EXPIRY_S: Final = 1.0
"""Expiry is kept on the monotonic clock; converted to UTC it differs by rounding."""

_log = structlog.get_logger()


@final
class GatedPods:
    """Writer of pods that await capacity."""

    def __init__(
        self,
        client: "KubeClient",
        reader: "AllocationReader",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._reader = reader
        self._now = now
        self._ungated: set[PodUid] = set()
        # pods whose gate is being removed, or was, until the watch shows it
        self._refused: dict[PodUid, float] = {}
        # pods whose writes were refused -> when to try again
        TASK_FAILURES.labels(TASK)

    def held(self) -> "list[tuple[PodFacts, Reservation]]":
        """Return the gated pods with reserved units in the order in which they are to be ungated."""
        found: list[tuple[PodFacts, Reservation]] = []
        for reservation in self._reader.ledger.all():
            if reservation.phase is not ReservationPhase.CONFIRMED or reservation.uid is None:
                continue
            pod = self._reader.pods.get(reservation.uid)
            if pod is not None and reservation.has_units and self.is_gated(pod):
                found.append((pod, reservation))
        return sorted(found, key=lambda item: order(item[0]))

    def is_gated(self, pod: "PodFacts") -> bool:
        """Say whether the pod has our gate and no other one."""
        return (
            pod.phase is PodPhase.PENDING
            and pod.awaits_capacity
            and not pod.is_gated
            and pod.uid not in self._ungated
            and self._refused.get(pod.uid, 0.0) <= self._now().monotonic
        )

    async def note(self, pods: "Sequence[PodFacts]") -> None:
        """Write each pod's reservation into its annotation, where it is not there yet.

        Raises:
            KubeError: a pod could not be written.
        """
        await write_in_order(pods, self._note, at_a_time=WRITERS)

    async def ungate(self, pods: "Sequence[PodFacts]") -> None:
        """Remove the gate of the pods, in their order, with the annotation of the reservation that they have.

        Raises:
            KubeError: a pod could not be written.
        """
        await write_in_order(pods, self._ungate, at_a_time=WRITERS)

    def forget_ungated(self) -> None:
        """Forget the pods whose removed gate the watch has delivered, and those that are gone."""
        for uid in (*self._ungated, *self._refused):
            pod = self._reader.pods.get(uid)
            if pod is None or not pod.awaits_capacity:
                self._ungated.discard(uid)
                self._refused.pop(uid, None)

    async def _note(self, pod: "PodFacts") -> None:
        note = self._note_of(pod)
        if note is None or _agree(note, pod.reservation):
            return
        await self._write(pod, {"metadata": _metadata(pod, note)})

    async def _ungate(self, pod: "PodFacts") -> None:
        current = self._reader.pods.get(pod.uid)
        if current is None or not self.is_gated(current):
            return
        note = self._note_of(pod)
        patch = {"metadata": _metadata(pod, note), "spec": {"schedulingGates": None}}
        # Before the write: the hand-over and `pool.capacity` may both come to the pod while it is written.
        self._ungated.add(pod.uid)
        is_written = False
        try:
            is_written = await self._write(pod, patch)
        finally:
            if not is_written:
                self._ungated.discard(pod.uid)
        if is_written:
            _log.info(
                "pod ungated",
                pod=pod.ref,
                node=note.node if note is not None else "",
                units=pod.demand.units,
            )

    def _note_of(self, pod: "PodFacts") -> "ReservationNote | None":
        reservation = self._reader.ledger.of_pod(pod.uid)
        return note_of(reservation, self._now()) if reservation is not None else None

    async def _write(self, pod: "PodFacts", patch: object) -> bool:
        """Write a pod; False where it is gone, which the watch is about to show, or may not be written for now."""
        try:
            await self._client.merge_patch(PODS, patch, name=pod.name, namespace=pod.namespace)
        except (NotFound, Invalid):
            # Invalid: another pod has its name by now, and a uid is immutable.
            return False
        except ApiError as error:
            if error.is_transient:
                raise
            # A webhook or policy of others, which must not keep the pods after it waiting.
            self._refused[pod.uid] = self._now().monotonic + REFUSED_FOR_S
            TASK_FAILURES.labels(TASK).inc()
            _log.warning("gated pod could not be written", pod=pod.ref, error=str(error))
            return False
        return True


def order(pod: "PodFacts") -> tuple[int, str, str]:
    """Return the sort key of waiting pods: highest priority first, then oldest."""
    return (-pod.priority, pod.created, pod.ref)


def _metadata(pod: "PodFacts", note: "ReservationNote | None") -> dict[str, object]:
    metadata: dict[str, object] = {"uid": pod.uid}
    if note is not None:
        metadata["annotations"] = {RESERVATION_ANNOTATION: note.encode()}
    return metadata


def _agree(note: "ReservationNote", written: "ReservationNote | None") -> bool:
    if written is None or note.expires_at is None or written.expires_at is None:
        return False
    if (note.id, note.node, note.devices) != (written.id, written.node, written.devices):
        return False
    return abs((note.expires_at - written.expires_at).total_seconds()) <= SAME_EXPIRY_S


def gated_pods(context: "ControllerContext") -> GatedPods:
    """Return a new writer; take the term's own by `context.shared(gated_pods)`."""
    return GatedPods(context.client, context.reader, context.now)

"""Writing side of the allocation state: device index and reservation ledger, kept in step.

Every transition of a pod between the two is a method here. All methods are synchronous and therefore
atomic. Plans and queries are `pool.allocation_reader`'s; a plan is valid until the next `await`.
"""

from typing import TYPE_CHECKING, final

from msgspec.structs import replace

from api.names import PodUid, ReservationId, owner_of
from pool.admission_planner import AdmissionPlanner
from pool.admission_rules import AdmissionBackoff
from pool.allocation_reader import AllocationReader
from pool.errors import InvariantViolatedError
from pool.index.device_index import DeviceIndex
from pool.model import PodPhase, UnitlessPod
from pool.pods.observed import ObservedPods
from pool.pods.pod_claims import PodClaims
from pool.reservations import conflicts
from pool.reservations.ledger import ReservationLedger
from pool.reservations.reservation import (
    OBSERVE_WITHIN_S,
    End,
    Ended,
    PlacementRequest,
    Reservation,
    ReservationPhase,
)
from pool.reservations.restore import restored_reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.clock import Instant
    from api.names import NodeName, PoolName
    from pool.model import PodFacts
    from pool.placement.planner import Placed
    from pool.pods.reported import AllocationMismatch, PodReport


@final
class AllocationState:
    """Reservations, and the observed and reported pods, applied to the device index."""

    def __init__(
        self,
        index: DeviceIndex | None = None,
        *,
        on_end: "Callable[[Ended], None] | None" = None,
        on_mismatch: "Callable[[AllocationMismatch], None] | None" = None,
        on_reported: "Callable[[], None]" = lambda: None,
    ) -> None:
        """Start without pods and reservations.

        Args:
            index: the device index, of whose claims this is the only writer; a new one if omitted.
            on_end: called for every reservation with units that ends; it must not call back.
            on_mismatch: called for every pod whose node reports other units than it was bound with;
                it must not call back.
            on_reported: called after a node's report has changed, or claims of a pod have ended; it must not call back.
        """
        self.index = index if index is not None else DeviceIndex()
        self.ledger = ReservationLedger()
        self._on_end = on_end
        self._on_reported = on_reported
        self._pods = ObservedPods()
        self.pod_claims = PodClaims(self.index, self._pods, on_mismatch)
        self._backoff = AdmissionBackoff()
        self.reader = AllocationReader(
            self.index,
            self.ledger,
            self._pods,
            pod_claims=self.pod_claims,
            admission=AdmissionPlanner(self.index, self.ledger, self._pods, backoff=self._backoff),
        )

    def reserve(
        self, request: PlacementRequest, placed: "Placed | None", now: "Instant"
    ) -> Reservation:
        """Reserve the planned units for a pod; without a plan, record only that it was admitted.

        Raises:
            InvariantViolatedError: a unit is not free, so the plan was not carried out at once.
        """
        reservation = request.reservation(placed, now, phase=ReservationPhase.HELD)
        if conflicts.conflicts(reservation, self.index):
            raise _not_free(reservation)
        self._add(reservation)
        return reservation

    def tie(self, id_: ReservationId, uid: PodUid, *, name: str, now: "Instant") -> bool:
        """Give a reservation its pod's final name and uid; False when it ended, or is another pod's."""
        reservation = self.ledger.get(id_)
        if reservation is None or reservation.uid not in {None, uid}:
            return False
        other = self.ledger.of_pod(uid)
        if other is not None and other.id != id_:
            return False
        self.ledger.tie(id_, uid, name=name, observe_by=now.monotonic + OBSERVE_WITHIN_S)
        return True

    def withdraw(self, id_: ReservationId) -> Ended | None:
        """End a reservation that has no uid yet, since its pod is planned again. None for any other."""
        reservation = self.ledger.get(id_)
        if reservation is None or reservation.phase is not ReservationPhase.HELD:
            return None
        return self._end(reservation, End.RELEASED)

    def release_reservations(self, pool: "PoolName") -> list[Ended]:
        """End the reservations of a pool that allocates no units, so that it empties; their pods wait.

        Commitments to a Binding stay: the API server may have bound the pod.
        """
        return self._release_all(lambda item: owner_of(item.pool) == pool and item.has_units)

    def release_on(self, node: "NodeName") -> list[Ended]:
        """End the reservations on a node that pods cannot go to any more; their pods wait.

        Commitments to a Binding stay: the API server may have bound the pod.
        """
        return self._release_all(lambda item: item.node == node)

    def _release_all(self, is_meant: "Callable[[Reservation], bool]") -> list[Ended]:
        found = [item for item in self.ledger.all() if item.phase.is_uncommitted and is_meant(item)]
        return [self._end(reservation, End.RELEASED) for reservation in found]

    def hold(
        self, request: PlacementRequest, placed: "Placed", *, uid: PodUid, now: "Instant"
    ) -> Reservation | None:
        """Reserve the planned units for a stored pod that waits.

        None where the pod is gone, bound or gated by others, or has a reservation. Reservations of pods that are not
        observed yet lose their units to this one.

        Raises:
            InvariantViolatedError: a unit is another stored pod's, so the plan was not carried out at once.
        """
        facts = self._pods.get(uid)
        is_waiting = facts is not None and facts.phase is PodPhase.PENDING and not facts.is_gated
        if facts is None or not is_waiting or self.ledger.of_pod(uid) is not None:
            return None
        reservation = request.reservation(placed, now, phase=ReservationPhase.CONFIRMED, uid=uid)
        reservation = replace(reservation, peer=facts.peer)
        self._take_over(reservation, now)
        self._add(reservation)
        self._pods.pending.stop_waiting(facts)
        self.index.set_requests(uid, placed.node, facts.requests)
        return reservation

    def extend(self, uid: PodUid, ttl_s: float, now: "Instant") -> Reservation | None:
        """Let a stored pod's reservation end this much later than now; None where it has none, or its Binding was sent."""
        reservation = self.ledger.of_pod(uid)
        if reservation is None or reservation.phase is not ReservationPhase.CONFIRMED:
            return None
        extended = replace(reservation, expires_at=now.monotonic + ttl_s)
        self.ledger.move(extended)
        return extended

    def let_pods_go_back(self, *, may: bool) -> None:
        """Say whether pods may be pending again, since the API server's store may be one that was restored."""
        self._pods.may_go_back = may

    def observe_pod(self, facts: "PodFacts", now: "Instant") -> list[Ended]:
        """Apply an observed pod that names a pool; return the reservations that this ends.

        A pod never goes back to pending, so an older event that comes late changes nothing; but see
        `let_pods_go_back`.
        """
        before = self._pods.get(facts.uid)
        if not self._pods.update(facts):
            return []
        if self._pods.may_go_back and facts.phase is PodPhase.PENDING and before is not None:
            return self._observe_pending_again(facts, before, now)
        if before is None or facts.phase is not PodPhase.PENDING:
            self.pod_claims.forget_deleted(facts.uid)
        if before is None:
            self.index.demands.observe(facts)
            self._note_appearance(facts)
        ended: list[Ended]
        match facts.phase:
            case PodPhase.PENDING:
                ended = self._observe_pending(facts, now, is_new=before is None)
            case PodPhase.BOUND:
                ended = self._observe_bound(facts, before)
            case PodPhase.ENDED:  # pragma: no branch  # mypy proves that no case is missing
                ended = self._drop_claims(facts)
        return [item for item in ended if item.reservation.has_units]

    def discard_pod(self, uid: PodUid) -> list[Ended]:
        """Drop a deleted pod; return the reservations that this ends.

        kubelet shows a pod as ended before it deletes it. A pod that was not shown so was deleted by force, and its
        processes may run on: it keeps the units that its node reports for as long as the node reports them.
        """
        facts = self._pods.discard(uid)
        ended = self._drop(self.ledger.of_pod(uid)) if facts is None else self._drop_claims(facts)
        if facts is not None:
            self.pod_claims.keep_reported(facts)
        return [item for item in ended if item.reservation.has_units]

    def observe_unitless(self, pod: "UnitlessPod") -> None:
        """Apply an observed pod that requests no units; one that has ended takes nothing."""
        self.index.set_requests(pod.uid, pod.node, pod.requests)
        self.index.peers.replace(pod.uid, pod.node, pod.peer)

    def discard_unitless(self, uid: PodUid) -> None:
        """Drop a deleted pod that requested no units."""
        self.index.set_requests(uid, None)
        self.index.peers.replace(uid, None, None)

    def expire(self, now: "Instant") -> list[Ended]:
        """End overdue reservations, and the newness of devices; return ended reservations with units."""
        self.index.admit_new_devices(now.monotonic)
        ended = [self._end(item, end) for item, end in self.ledger.due(now.monotonic)]
        for item in ended:
            if item.end is End.NOT_OBSERVED:
                self._note_absence(item.reservation, now)
        return [item for item in ended if item.reservation.has_units]

    def observe_reports(
        self, node: "NodeName", reports: "Mapping[PodUid, PodReport]"
    ) -> "list[PodFacts]":
        """Replace a node's report; return the bound pods whose report has changed.

        Pods that are bound to another node are among them, and their reports do not count. A reported unit is in use
        from here on, and an assigned unit that the pod did not get is free. A reservation or commitment that has a
        reported unit loses it, as to any bound pod: its pod is planned again. A report may come before its pod is
        known as bound, or after its end; it counts in between. The report of a pod that was deleted before it ended
        counts as long as the node repeats it.
        """
        found = self.pod_claims.replace_reports(node, reports)
        self._on_reported()
        return found

    def commit(
        self, request: PlacementRequest, placed: "Placed", *, uid: PodUid, now: "Instant"
    ) -> Reservation:
        """Turn a plan into a commitment, in place of the pod's reservation if it has one.

        `request.id` is used for a pod without a reservation, or names a reservation that has no uid yet.
        Reservations of pods that are not observed yet lose their units to this one.

        Raises:
            InvariantViolatedError: the pod is bound or committed already, or a unit is another stored pod's.
        """
        existing = self.ledger.of_pod(uid) or self.ledger.untied(request.id)
        facts = self._pods.get(uid)
        if (existing is not None and not existing.phase.is_uncommitted) or (
            facts is not None and facts.phase is not PodPhase.PENDING
        ):
            raise InvariantViolatedError(f"pod uid {uid} is bound or committed already")
        planned = request.reservation(placed, now, phase=ReservationPhase.COMMITTED, uid=uid)
        reservation = replace(
            planned,
            peer=facts.peer if facts else existing.peer if existing else request.peer,
            id=existing.id if existing else planned.id,
            created_at=existing.created_at if existing else now.monotonic,
            expires_at=existing.expires_at if existing else now.monotonic,
        )
        self._take_over(reservation, now)
        if existing is None:
            self._add(reservation)
        else:
            self.ledger.move(reservation)
            self._claim(reservation)
        if facts is not None:
            self._pods.pending.stop_waiting(facts)
            self.index.set_requests(uid, placed.node, facts.requests)
        return reservation

    def written(self, uid: PodUid) -> None:
        """Record that the API server accepted the Binding. The watch retires the commitment."""
        reservation = self.ledger.of_pod(uid)
        if reservation is not None and not reservation.phase.is_uncommitted:
            self.ledger.move(replace(reservation, phase=ReservationPhase.BOUND))

    def mark_doubtful(self, uid: PodUid, now: "Instant") -> None:
        """Record that the outcome of the Binding is unknown.

        Does nothing when the watch was faster, the pod is gone, or the answer came after all.
        """
        reservation = self.ledger.of_pod(uid)
        if reservation is not None and reservation.phase is ReservationPhase.COMMITTED:
            self.ledger.move(
                replace(reservation, phase=ReservationPhase.DOUBTFUL, observe_by=now.monotonic)
            )

    def retry(self, uid: PodUid) -> Reservation | None:
        """Commit a doubtful reservation again, to send the same Binding once more.

        None where another pod was bound with any of its units, which were free while another replica led. The doubt
        ends as every doubt does, and the pod is planned again.
        """
        reservation = self.ledger.of_pod(uid)
        if reservation is None or reservation.phase is not ReservationPhase.DOUBTFUL:
            return None
        if conflicts.conflicts_with_stored_pods(reservation, self.index):
            return None
        committed = replace(reservation, phase=ReservationPhase.COMMITTED)
        self.ledger.move(committed)
        return committed

    def release(self, uid: PodUid) -> Ended | None:
        """End a pod's reservation: its Binding was refused, or a read showed that it is not bound."""
        reservation = self.ledger.of_pod(uid)
        return self._end(reservation, End.RELEASED) if reservation else None

    def _observe_pending(self, facts: "PodFacts", now: "Instant", *, is_new: bool) -> list[Ended]:
        self._pods.pending.nominate(facts, now.monotonic)
        reservation = self.ledger.of(facts)
        if reservation is None and is_new:
            reservation = self._restore(facts, now)
        if reservation is None:
            self._pods.pending.wait(facts)
            return []
        if not reservation.phase.is_uncommitted:
            return []
        if not reservation.has_units:
            self._pods.pending.wait(facts)
            return self._drop(reservation)
        self.ledger.confirm(reservation.id, facts.uid, facts.name)
        self.index.set_assumed(reservation.id, reservation.units)
        self.index.set_requests(facts.uid, reservation.node, facts.requests)
        return []

    def _observe_pending_again(
        self, facts: "PodFacts", before: "PodFacts", now: "Instant"
    ) -> list[Ended]:
        """Take back that the pod was bound; it keeps the units that its node still reports for it."""
        ended: list[Ended] = []
        reservation = self.ledger.of(facts)
        if before.phase is not PodPhase.PENDING:
            ended = self._drop_claims(before)
            self.pod_claims.keep_reported(before)
        elif reservation is not None and reservation.phase is ReservationPhase.BOUND:
            ended = [self._end(reservation, End.RELEASED)]
        return ended + self._observe_pending(
            facts, now, is_new=before.phase is not PodPhase.PENDING
        )

    def _observe_bound(self, facts: "PodFacts", before: "PodFacts | None") -> list[Ended]:
        if facts.node is None:
            raise InvariantViolatedError(f"pod {facts.ref} is bound to no node")
        if before is None or not before.is_accounted_like(facts):
            self.pod_claims.account(facts, facts.node)
        return self._drop(self.ledger.of(facts), End.BOUND)

    def _drop_claims(self, facts: "PodFacts") -> list[Ended]:
        self.pod_claims.end(facts.uid)
        self._on_reported()
        return self._drop(self.ledger.of(facts))

    def _restore(self, facts: "PodFacts", now: "Instant") -> Reservation | None:
        """Restore the reservation that an earlier process wrote into the pod's annotation, while it is valid."""
        reservation = restored_reservation(facts, self.index, now)
        if (
            reservation is None
            or self.ledger.get(reservation.id) is not None
            or conflicts.conflicts_with_stored_pods(reservation, self.index)
        ):
            return None
        self._take_over(reservation, now)
        self._add(reservation)
        return reservation

    def _add(self, reservation: Reservation) -> None:
        self.ledger.add(reservation)
        self._claim(reservation)

    def _claim(self, reservation: Reservation) -> None:
        self.index.set_assumed(
            reservation.id, reservation.units, is_confirmed=reservation.phase.is_confirmed
        )
        self.index.peers.replace(reservation.id, reservation.node, reservation.peer)

    def _take_over(self, reservation: Reservation, now: "Instant") -> None:
        """End the unconfirmed reservations that have any of these units."""
        if conflicts.conflicts_with_stored_pods(reservation, self.index):
            raise _not_free(reservation)
        for id_ in conflicts.unconfirmed_rivals(reservation, self.index):
            rival = self.ledger.get(id_)
            if rival is None:
                raise InvariantViolatedError(f"{id_} has units and is not in the ledger")
            self._end(rival, End.TAKEN_OVER)
            self._note_absence(rival, now)

    def _note_absence(self, reservation: Reservation, now: "Instant") -> None:
        if reservation.has_units:
            self._backoff.note_absence(reservation.pool, reservation.namespace, now.monotonic)

    def _note_appearance(self, facts: "PodFacts") -> None:
        pool = self.index.pool_of(facts.demand.resource) if len(self._backoff) else None
        if pool is not None:
            self._backoff.note_appearance(pool.name, facts.namespace)

    def _drop(self, reservation: Reservation | None, end: End = End.RELEASED) -> list[Ended]:
        return [self._end(reservation, end)] if reservation is not None else []

    def _end(self, reservation: Reservation, end: End) -> Ended:
        """End a live reservation: its units are free and its pod waits."""
        self.ledger.end(reservation.id, end)
        self.index.set_assumed(reservation.id, ())
        self.index.peers.replace(reservation.id, None, None)
        if reservation.uid is not None and end is not End.BOUND:
            self.index.set_requests(reservation.uid, None)
        ended = Ended(reservation, end)
        if self._on_end is not None and reservation.has_units:
            self._on_end(ended)
        self._on_reported()
        self._pods.await_units(reservation.uid)
        return ended


def _not_free(reservation: Reservation) -> InvariantViolatedError:
    return InvariantViolatedError(
        f"reservation {reservation.id} of pod {reservation.pod} takes units that are not free"
    )

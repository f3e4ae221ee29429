"""Recovery of bindings with unknown outcome, by a read of the pod.

Used by bind after a conflict, and by a reconciler for commitments that stay unresolved. A doubtful commitment
keeps its units until a read shows the pod bound or gone, or pending so late that the lost write cannot land.
"""

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pool.errors import InvariantViolatedError
from pool.model import PodPhase
from pool.reservations.reservation import ReservationPhase
from scheduler.ports import BoundReading, FailedReading, MissingReading, PendingReading, PodRef

if TYPE_CHECKING:
    from api.clock import Instant
    from pool.reservations.reservation import Reservation
    from scheduler.context import ExtenderContext
    from scheduler.ports import PodReading

MAY_LAND_S: Final = 60.0
"""kube-apiserver's --request-timeout: it gives a request up after that, and a commit to etcd goes with the request.
Doubt begins when the answer is given up, after the write was sent. A pod that is still pending this long after
was not bound by that write and will not be.
"""

_UNRESOLVED: Final = frozenset({ReservationPhase.DOUBTFUL, ReservationPhase.BOUND})


class RecoveryOutcome(StrEnum):
    """Result for a commitment."""

    CONFIRMED = "confirmed"
    """The pod is bound as committed; the watch retires the commitment."""
    OVERTAKEN = "overtaken"
    """The pod is bound to another node or other devices, which the allocation state now has."""
    RELEASED = "released"
    """The pod is gone, or pending and the write cannot land any more."""
    STILL_OPEN = "still_open"
    """The pod is pending, and the write may still land."""
    UNSEEN = "unseen"
    """The pod could not be read."""
    MOVED_ON = "moved_on"
    """The commitment ended, or was sent again, before the read came back."""


async def recover_binding(
    reservation: "Reservation", context: "ExtenderContext"
) -> RecoveryOutcome:
    """Read the pod of an unresolved commitment once, and apply what the read shows. Idempotent.

    Nothing is done when the commitment changed during the read, which would then be out of date. Cancellation leaves
    everything as it was.

    Args:
        reservation: one of `reader.ledger.unresolved()`, as it is now.
        context: the allocation state and the port.
    """
    if reservation.phase not in _UNRESOLVED:
        return RecoveryOutcome.MOVED_ON
    reading = await context.binder.read(pod_of(reservation))
    if context.reader.ledger.get(reservation.id) is not reservation:
        return RecoveryOutcome.MOVED_ON
    may_land = reservation.phase is ReservationPhase.DOUBTFUL and write_may_land(
        reservation, context.now()
    )
    return apply_read(reservation, reading, context, may_land=may_land)


def pod_of(commitment: "Reservation") -> PodRef:
    """Return the pod of a commitment, which always has a uid."""
    if commitment.uid is None:
        raise InvariantViolatedError(f"reservation {commitment.id} is committed without a uid")
    return PodRef(commitment.namespace, commitment.name, commitment.uid)


def write_may_land(doubtful: "Reservation", now: "Instant") -> bool:
    """Say whether the API server may still carry out a write without an answer."""
    return now.monotonic - doubtful.observe_by < MAY_LAND_S


def apply_read(
    reservation: "Reservation",
    reading: "PodReading",
    context: "ExtenderContext",
    *,
    may_land: bool,
) -> RecoveryOutcome:
    """Apply a read of a committed pod to the allocation state.

    Args:
        reservation: the pod's commitment.
        reading: the result of the read.
        context: the allocation state.
        may_land: whether a write for this commitment may still be carried out.
    """
    uid = pod_of(reservation).uid
    match reading:
        case BoundReading(node=node, devices=devices):
            if (node, devices) == (reservation.node, reservation.devices):
                context.allocation_state.written(uid)
                return RecoveryOutcome.CONFIRMED
            _follow(reservation, reading, context)
            return RecoveryOutcome.OVERTAKEN
        case PendingReading():
            if may_land:
                return RecoveryOutcome.STILL_OPEN
            context.allocation_state.release(uid)
            return RecoveryOutcome.RELEASED
        case MissingReading():
            context.allocation_state.release(uid)
            return RecoveryOutcome.RELEASED
        case FailedReading():
            return RecoveryOutcome.UNSEEN


def _follow(reservation: "Reservation", seen: BoundReading, context: "ExtenderContext") -> None:
    """Replace the commitment by what was read, as the watch will in a moment.

    A pod that the watch has not delivered is only released: were it gone by now, no event would ever say so.
    """
    allocation_state, uid = context.allocation_state, pod_of(reservation).uid
    if context.reader.ledger.get(reservation.id) is not reservation:
        return
    facts = context.reader.pods.get(uid)
    if facts is None:
        allocation_state.release(uid)
        return
    allocation_state.observe_pod(
        replace(facts, phase=PodPhase.BOUND, node=seen.node, devices=seen.devices), context.now()
    )

"""Settling: what a read of the pod says about a binding of which the end is not known.

Used by bind after a conflict, and by a reconciler for commitments that stay unsettled. A doubtful
commitment keeps its units until a read shows the pod bound or gone, or shows it pending so late that
the lost write cannot land any more.
"""

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pool.errors import InvariantViolatedError
from pool.model import PodPhase
from pool.reservations.reservation import ReservationPhase
from scheduler.ports import PodRef, SeenBound, SeenGone, SeenPending, Unseen

if TYPE_CHECKING:
    from pool.model import Instant
    from pool.reservations.reservation import Reservation
    from scheduler.context import ExtenderContext
    from scheduler.ports import PodSighting

MAY_LAND_S: Final = 60.0
"""kube-apiserver's --request-timeout: it gives a request up after that, and a commit to etcd goes with
the request. Doubt begins when the answer is given up, hence after the write was sent, so that a pod
still pending this long after was not bound by that write and will not be."""

_UNSETTLED: Final = frozenset({ReservationPhase.DOUBTFUL, ReservationPhase.BOUND})


class Settlement(StrEnum):
    """What became of a commitment."""

    CONFIRMED = "confirmed"
    """The pod is bound as committed; the watch will retire the commitment."""
    OVERTAKEN = "overtaken"
    """The pod is bound, to another node or devices: the books follow what was seen."""
    RELEASED = "released"
    """The pod is pending and the write cannot land any more, or the pod is gone."""
    STILL_OPEN = "still_open"
    """The pod is pending, and the write may yet land."""
    UNSEEN = "unseen"
    """The pod could not be read."""
    MOVED_ON = "moved_on"
    """The commitment ended, or was taken up again, before the read came back."""


async def recover_binding(reservation: "Reservation", context: "ExtenderContext") -> Settlement:
    """Read the pod of an unsettled commitment once, and act on what is seen. Idempotent.

    Nothing is done when the commitment changed during the read: the answer would speak of the past.
    Cancellation leaves everything as it was.

    Args:
        reservation: one of `reader.unsettled()`, as it is now.
        context: the books and the port.
    """
    if reservation.phase not in _UNSETTLED:
        return Settlement.MOVED_ON
    sighting = await context.binder.look(pod_of(reservation))
    if context.reader.reservation(reservation.id) is not reservation:
        return Settlement.MOVED_ON
    may_land = reservation.phase is ReservationPhase.DOUBTFUL and write_may_land(
        reservation, context.now()
    )
    return take_in(reservation, sighting, context, may_land=may_land)


def pod_of(commitment: "Reservation") -> PodRef:
    """Return the pod of a commitment, which has a uid from the moment it is one."""
    if commitment.uid is None:
        raise InvariantViolatedError(f"reservation {commitment.id} is committed without a uid")
    return PodRef(commitment.namespace, commitment.name, commitment.uid)


def write_may_land(doubtful: "Reservation", now: "Instant") -> bool:
    """Say whether the API server may still carry out a write whose answer never came."""
    return now.monotonic - doubtful.observe_by < MAY_LAND_S


def take_in(
    reservation: "Reservation",
    sighting: "PodSighting",
    context: "ExtenderContext",
    *,
    may_land: bool,
) -> Settlement:
    """Bring the books in line with what a read of a committed pod showed.

    Args:
        reservation: the pod's commitment.
        sighting: what the read showed.
        context: the books.
        may_land: whether a write for this commitment may still be carried out.
    """
    uid = pod_of(reservation).uid
    match sighting:
        case SeenBound(node=node, devices=devices):
            if (node, devices) == (reservation.node, reservation.devices):
                context.allocation_state.written(uid)
                return Settlement.CONFIRMED
            _follow(reservation, sighting, context)
            return Settlement.OVERTAKEN
        case SeenPending():
            if may_land:
                return Settlement.STILL_OPEN
            context.allocation_state.release(uid)
            return Settlement.RELEASED
        case SeenGone():
            context.allocation_state.release(uid)
            return Settlement.RELEASED
        case Unseen():
            return Settlement.UNSEEN


def _follow(reservation: "Reservation", seen: SeenBound, context: "ExtenderContext") -> None:
    """Replace the commitment by what is true, as the watch will in a moment.

    A pod that the watch has not shown is only released: were it gone by now, nobody would ever say so.
    """
    allocation_state, uid = context.allocation_state, pod_of(reservation).uid
    if context.reader.reservation(reservation.id) is not reservation:
        return
    facts = context.reader.pod(uid)
    if facts is None:
        allocation_state.release(uid)
        return
    allocation_state.observe_pod(
        replace(facts, phase=PodPhase.BOUND, node=seen.node, devices=seen.devices), context.now()
    )

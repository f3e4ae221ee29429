"""What the world is told when a reservation ends: a metric and a log line always, Events on expiry.

Called by the books in the middle of a transition, so it only records.
"""

from typing import TYPE_CHECKING, Protocol, final

import structlog

from pool.reservations.reservation import End
from telemetry.metrics import RESERVATIONS_ENDED
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from pool.reservations.reservation import Ended, Reservation

_log = structlog.get_logger()


class EventSink(Protocol):
    """Writes Events in the background."""

    def warn_pool(self, reservation: "Reservation", reason: EventReason, note: str) -> None:
        """Put a warning on the reservation's pool. Never blocks, never raises."""

    def warn_pod(self, reservation: "Reservation", reason: EventReason, note: str) -> None:
        """Put a warning on the reservation's pod, if it is known. Never blocks, never raises."""


@final
class ReservationEnd:
    """Counts, logs and announces ended reservations."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._counters = {end: RESERVATIONS_ENDED.labels(end.value) for end in End}

    def __call__(self, ended: "Ended") -> None:
        """Record one ending."""
        reservation = ended.reservation
        self._counters[ended.end].inc()
        _log.info(
            "reservation ended",
            end=ended.end.value,
            reservation=reservation.id,
            pool=reservation.pool,
            pod=reservation.pod,
            node=reservation.node,
            units=reservation.demand.units,
        )
        if ended.end is End.EXPIRED:
            units = reservation.demand.units
            unit, are = ("unit", "is") if units == 1 else ("units", "are")
            held = f"{units} {unit} on node {reservation.node}"
            self._events.warn_pool(
                reservation,
                EventReason.RESERVATION_EXPIRED,
                f"{held}, held for pod {reservation.pod}, {are} free again: it was not bound in time",
            )
            self._events.warn_pod(
                reservation,
                EventReason.RESERVATION_EXPIRED,
                f"{held} of GPU pool {reservation.pool} {are} no longer held for this pod; "
                "it is scheduled when units are free",
            )

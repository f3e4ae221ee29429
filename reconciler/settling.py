"""`binding.settling`: reads pods whose binding is in doubt, or accepted but not yet observed.

The happy path never comes here: the watch retires a written binding within milliseconds.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

import structlog

from pool.reservation import ReservationPhase
from scheduler.settling import Settlement, settle
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from pool.reservation import Reservation
    from scheduler.desk import SchedulingDesk

PERIOD_S: Final = 1.0
UNSEEN_AFTER_S: Final = 10.0
"""How long an accepted binding may stay unobserved before the pod is read."""

_log = structlog.get_logger()


@final
class Settling:
    """Settles bindings by reading the pod, never by a guess."""

    def __init__(self, desk: "SchedulingDesk") -> None:
        self._desk = desk
        TASK_FAILURES.labels("binding.settling")

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            for reservation in self._due():
                try:
                    outcome = await settle(reservation, self._desk)
                except Exception as error:  # noqa: BLE001  # the per-item boundary: counted, retried
                    TASK_FAILURES.labels("binding.settling").inc()
                    _log.warning("settling failed", pod=reservation.pod, error=str(error))
                else:
                    _report(reservation, outcome)

    def _due(self) -> "list[Reservation]":
        """Return doubtful bindings, and written ones that the watch has not shown for long."""
        now = self._desk.now().monotonic
        return [
            reservation
            for reservation in self._desk.books.unsettled()
            if reservation.phase is ReservationPhase.DOUBTFUL
            or now > reservation.observe_by + UNSEEN_AFTER_S
        ]


def _report(reservation: "Reservation", outcome: Settlement) -> None:
    match outcome:
        case Settlement.STILL_OPEN | Settlement.MOVED_ON:
            log = _log.debug
        case Settlement.UNSEEN:
            # The same as a failure, without an exception: counted, and tried again.
            TASK_FAILURES.labels("binding.settling").inc()
            log = _log.warning
        case _:
            log = _log.info
    log("binding looked at", pod=reservation.pod, node=reservation.node, outcome=outcome)

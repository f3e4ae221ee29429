"""`binding.settling`: reads pods whose binding is in doubt, or accepted but not yet observed.

The happy path never comes here: the watch retires a written binding within milliseconds.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

import structlog

from pool.reservations.reservation import ReservationPhase
from reconciler.controller_spec import TaskSpec
from scheduler.bind_recovery import RecoveryOutcome, recover_binding
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from api.names import ReservationId
    from pool.reservations.reservation import Reservation
    from scheduler.context import ExtenderContext

PERIOD_S: Final = 1.0
UNSEEN_AFTER_S: Final = 10.0
"""How long an accepted binding may stay unobserved before the pod is read."""
AGAIN_AFTER_S: Final = 160.0
"""The longest pause between two reads that prove the same. The first is `UNSEEN_AFTER_S`, each later one
twice as long: a watch that is half-open is noticed after 150 s, with thousands of bindings unobserved."""

_log = structlog.get_logger()


@final
class BindingRecovery:
    """Settles bindings by reading the pod, never by a guess."""

    def __init__(self, context: "ExtenderContext") -> None:
        self._context = context
        self._proven: dict[ReservationId, tuple[float, float]] = {}
        # a binding that a read has shown as it was accepted -> when to read again, and the pause until then
        TASK_FAILURES.labels("binding.settling")

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            for reservation in self._due():
                await self._resolve(reservation)

    async def _resolve(self, reservation: "Reservation") -> None:
        try:
            outcome = await recover_binding(reservation, self._context)
        except Exception as error:  # noqa: BLE001  # the per-item boundary: counted, retried
            TASK_FAILURES.labels("binding.settling").inc()
            _log.warning("settling failed", pod=reservation.pod, error=str(error))
            return
        _report(reservation, outcome)
        if outcome is RecoveryOutcome.CONFIRMED:
            self._put_off(reservation)

    def _due(self) -> "list[Reservation]":
        """Return doubtful bindings, and written ones that the watch has not delivered for long."""
        now = self._context.now().monotonic
        unresolved = self._context.reader.ledger.unresolved()
        proven = {item.id: self._proven[item.id] for item in unresolved if item.id in self._proven}
        self._proven = proven
        return [
            reservation
            for reservation in unresolved
            if reservation.phase is ReservationPhase.DOUBTFUL
            or now > proven.get(reservation.id, (reservation.observe_by + UNSEEN_AFTER_S,))[0]
        ]

    def _put_off(self, reservation: "Reservation") -> None:
        _, before_s = self._proven.get(reservation.id, (0.0, UNSEEN_AFTER_S / 2))
        pause_s = min(2 * before_s, AGAIN_AFTER_S)
        self._proven[reservation.id] = (self._context.now().monotonic + pause_s, pause_s)


def _report(reservation: "Reservation", outcome: RecoveryOutcome) -> None:
    match outcome:
        case RecoveryOutcome.STILL_OPEN | RecoveryOutcome.MOVED_ON:
            log = _log.debug
        case RecoveryOutcome.UNSEEN:
            # The same as a failure, without an exception: counted, and tried again.
            TASK_FAILURES.labels("binding.settling").inc()
            log = _log.warning
        case _:
            log = _log.info
    log("binding checked", pod=reservation.pod, node=reservation.node, outcome=outcome)


SPEC: Final = TaskSpec(
    name="binding.settling", build=lambda context: BindingRecovery(context.scheduling).run
)

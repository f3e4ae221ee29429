"""The condition of a pod that says whether units are available for it: the next one, and its form in the API.

It is not written where the pod has it already. A True one is written once: the pod has its units, or a node has them.
"""

from typing import TYPE_CHECKING, Any

from api.names import UNITS_CONDITION
from api.status_conditions import format_time
from api.text import MAX_MESSAGE_LENGTH, truncate, units
from pool.model import PodPhase, UnitsCondition
from telemetry.conditions import PodUnitsAvailable

if TYPE_CHECKING:
    import datetime as dt
    from enum import Enum

    from pool.model import PodFacts
    from pool.reservations.reservation import Reservation


def next_condition(
    shown: UnitsCondition | None,
    *,
    is_true: bool,
    reason: "Enum",
    message: str,
    now: "dt.datetime",
) -> UnitsCondition | None:
    """Return the condition to write; None where the shown one says the same, or is True and stays so."""
    message = truncate(message, MAX_MESSAGE_LENGTH)
    written = transitioned = format_time(now)
    if shown is not None and shown.is_true is is_true:
        if is_true or (shown.reason, shown.message) == (reason.value, message):
            return None
        transitioned = shown.transitioned or written
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
    wanted = f"{units(pod.demand.units)} of {pod.demand.resource}"
    if pod.phase is not PodPhase.PENDING and pod.node is not None:
        return PodUnitsAvailable.ALLOCATED, f"{wanted} are allocated on node {pod.node}"
    if reservation is not None and reservation.has_units:
        node = reservation.node
        return PodUnitsAvailable.RESERVED, f"{wanted} are reserved on node {node}"
    return None

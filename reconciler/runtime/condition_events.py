"""Events of conditions: one when a condition turns bad, one when it is good again.

The conditions that the object showed before the write say what is new, so another leader repeats nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.status_conditions import find_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from enum import Enum

    from api.meta import Condition
    from api.status_conditions import ConditionStatus
    from kube.event_recorder import EventRecorder, ObjectReference
    from telemetry.reasons import EventReason

_OPPOSITE: Final = {"True": "False", "False": "True"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionEvents:
    """The Events of one condition.

    Of a fault the first Event is that of the bad status, and the good one has an Event only after it. Of a condition that
    announces readiness it is the other way round: an object that is not ready yet has lost nothing.
    """

    type: "Enum"
    good: "ConditionStatus"
    lost: "EventReason"
    regained: "EventReason | None" = None
    """None: the good status has no Event."""
    announces_good: bool = False


def record_changes(
    recorder: "EventRecorder",
    regarding: "ObjectReference",
    events: "Iterable[ConditionEvents]",
    *,
    current: "Sequence[Condition] | None",
    written: "Sequence[Condition] | None",
    action: str,
) -> None:
    """Record the conditions that the last write turned bad, or good again."""
    for item in events:
        before, after = (find_condition(conditions, item.type) for conditions in (current, written))
        status = "" if before is None else before.status
        if after is None or after.status == status:
            continue
        is_good = after.status == item.good
        is_first = is_good is item.announces_good
        if after.status not in _OPPOSITE or not (is_first or status == _OPPOSITE[after.status]):
            continue
        if not is_good:
            recorder.warning(regarding, item.lost, after.message, action=action)
        elif item.regained is not None:
            text = f"{after.type} is {after.status}: {after.message}"
            recorder.normal(regarding, item.regained, text, action=action)

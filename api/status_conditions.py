"""Conditions of an object's status: found by type, and built beside those that the object shows.

The transition time moves with the status only. Pure: the caller passes the time.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final, Literal

from api.meta import Condition
from api.text import MAX_MESSAGE_LENGTH, truncate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from enum import Enum

_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"

ConditionStatus = Literal["True", "False", "Unknown"]


def find_condition(conditions: "Iterable[Condition] | None", type_: "Enum") -> Condition | None:
    """Return the condition of a type, or None."""
    return next(
        (condition for condition in conditions or () if condition.type == type_.value), None
    )


def is_condition_true(conditions: "Iterable[Condition] | None", type_: "Enum") -> bool:
    """Say whether the condition of a type is there, and True."""
    found = find_condition(conditions, type_)
    return found is not None and found.status == "True"


def without_conditions(
    conditions: "Iterable[Condition] | None", types: "Sequence[Enum]"
) -> list[Condition]:
    """Return the conditions of other types than these."""
    names = {type_.value for type_ in types}
    return [condition for condition in conditions or () if condition.type not in names]


def new_condition(  # noqa: PLR0913  # the fields of a condition
    type_: "Enum",
    reason: "Enum",
    message: str,
    *,
    status: ConditionStatus | bool,
    current: "Iterable[Condition] | None",
    generation: int,
    now: dt.datetime,
    keeps_text: bool = False,
) -> Condition:
    """Return a condition with a stable transition time.

    Args:
        type_: the condition's type.
        reason: PascalCase, from `telemetry.conditions`.
        message: for people; truncated to `MAX_MESSAGE_LENGTH`.
        status: a bool stands for True or False.
        current: the object's conditions; one of the type and status keeps its transition time.
        generation: `metadata.generation` of the object that was judged.
        now: the transition time where the status changes.
        keeps_text: for a message that says no more than the reason: a condition that is shown with this status
            and reason keeps its own message, since 40,000 devices are not written for better words.
    """
    if isinstance(status, bool):
        status = "True" if status else "False"
    before = find_condition(current, type_)
    is_same = before is not None and before.status == status
    if keeps_text and before is not None and is_same and before.reason == reason.value:
        message = before.message
    return Condition(
        type=type_.value,
        status=status,
        reason=reason.value,
        message=truncate(message, MAX_MESSAGE_LENGTH),
        last_transition_time=before.last_transition_time
        if before is not None and is_same
        else format_time(now),
        observed_generation=generation,
    )


def true_since(current: Condition | None) -> dt.datetime | None:
    """Return the time at which a condition became True; None where it is not, or the time is malformed."""
    if current is None or current.status != "True":
        return None
    return parse_time(current.last_transition_time)


def parse_time(text: str) -> dt.datetime | None:
    """Return the moment of a `metav1.Time`; None where it is malformed."""
    try:
        return dt.datetime.strptime(text, _FORMAT).replace(tzinfo=dt.UTC)
    except ValueError:
        return None


def format_time(moment: dt.datetime) -> str:
    """Return a UTC moment as `metav1.Time`."""
    return moment.strftime(_FORMAT)

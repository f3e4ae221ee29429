"""Conditions: a new one beside what is shown, whose transition time moves with the status only."""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api.meta import Condition
from api.text import truncate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from enum import Enum

MAX_MESSAGE_LENGTH: Final = 1024
"""A condition is read in a terminal; the API server would take 32 times that."""
_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def condition_of(conditions: "Iterable[Condition] | None", type_: "Enum") -> Condition | None:
    """Return the condition of a type, or None."""
    return next((one for one in conditions or () if one.type == type_.value), None)


def without(conditions: "Iterable[Condition] | None", types: "Sequence[Enum]") -> list[Condition]:
    """Return the conditions of other types than these."""
    names = {one.value for one in types}
    return [one for one in conditions or () if one.type not in names]


def condition(  # noqa: PLR0913  # the fields of a condition
    type_: "Enum",
    reason: "Enum",
    message: str,
    *,
    is_true: bool,
    shown: "Iterable[Condition] | None",
    generation: int,
    now: dt.datetime,
) -> Condition:
    """Return a condition; its transition time is that of the one shown while the status is the same."""
    before = condition_of(shown, type_)
    status = "True" if is_true else "False"
    return Condition(
        type=type_.value,
        status="True" if is_true else "False",
        reason=reason.value,
        message=truncate(message, MAX_MESSAGE_LENGTH),
        last_transition_time=(
            before.last_transition_time
            if before is not None and before.status == status
            else now.strftime(_FORMAT)
        ),
        observed_generation=generation,
    )


def since(shown: Condition | None) -> dt.datetime | None:
    """Return when a condition became True; None where it is not, or does not say when."""
    if shown is None or shown.status != "True":
        return None
    try:
        return dt.datetime.strptime(shown.last_transition_time, _FORMAT).replace(tzinfo=dt.UTC)
    except ValueError:
        return None

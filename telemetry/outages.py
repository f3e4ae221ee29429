"""An API server that does not answer is one line in ten seconds, not one for each task that waits for it.

Every task retries by itself and logs each failure with its `cause`, the name of an error of `kube.errors`. The first
record of a cause becomes the line; those of the next ten seconds are counted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENT: Final = "API server does not answer"
EVERY_S: Final = 10.0
CAUSES: Final = frozenset({"Unreachable", "TimedOut"})
"""Errors of `kube.errors` that are no answer. Refusals differ between resources, so that each is a line."""


@final
@dataclass(slots=True)
class _Told:
    at: float
    left_out: int = 0


@final
class Outages:
    """Lines of the last ten seconds, by cause."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def summary(self, record: "Mapping[str, Any]", now: float) -> dict[str, Any] | None:
        """Return the line to log for a record with a cause, or None for no line.

        A line names one of the tasks that wait, and the number of records that were left out before it.
        """
        cause = record["cause"]
        if cause not in CAUSES:
            return dict(record)
        told = self._told.get(cause)
        if told is not None and now < told.at + EVERY_S:
            told.left_out += 1
            return None
        self._told[cause] = _Told(now)
        line = {"event": EVENT, "cause": cause, "error": record.get("error", "")}
        line["during"] = record["event"]
        return line if told is None else {**line, "left_out": told.left_out}

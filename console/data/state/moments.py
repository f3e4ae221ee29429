"""Moments of the monotonic clock as texts of the wall clock: the same moment gives the same text each time."""

import datetime as dt
from typing import TYPE_CHECKING, Final, final

from api.status_conditions import format_time

if TYPE_CHECKING:
    from api.clock import Clock

_MOST_DRIFT: Final = dt.timedelta(seconds=1)
"""Most drift of the wall clock against the monotonic one; beyond it the wall clock was set."""


@final
class Moments:
    """Both clocks of a process, held together."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._start = self._read_start()

    def text(self, monotonic: float) -> str:
        """Return a moment, to the second."""
        return format_time(self._moment(monotonic))

    def time_of_day(self, monotonic: float) -> str:
        """Return a moment of these hours, in words."""
        return self._moment(monotonic).strftime("%H:%M:%S UTC")

    def _moment(self, monotonic: float) -> dt.datetime:
        start = self._read_start()
        if abs(start - self._start) > _MOST_DRIFT:
            self._start = start
        return self._start + dt.timedelta(seconds=round(monotonic))

    def now(self) -> str:
        return format_time(self._clock.utc_now())

    def _read_start(self) -> dt.datetime:
        return self._clock.utc_now() - dt.timedelta(seconds=self._clock.monotonic())

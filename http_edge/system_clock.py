"""Clock of the process; the only module that reads the machine's clocks."""

import datetime as dt
import time
from typing import final

from api.clock import Instant


@final
class SystemClock:
    """The machine's two clocks.

    Not `loop.time()`: uvloop reads the time once an iteration and to the millisecond, so that every
    decision would seem to take none. Tests that need virtual time bring their own clock.
    """

    def monotonic(self) -> float:
        return time.monotonic()

    def utc_now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)  # noqa: TID251  # this is the Clock

    def instant(self) -> Instant:
        return Instant(self.monotonic(), self.utc_now())

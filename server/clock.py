"""The real clock; the only place that reads it."""

import asyncio
import datetime as dt
from typing import final

from pool.model import Instant


@final
class SystemClock:
    """The event loop's monotonic time and the machine's wall clock; belongs to one loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def monotonic(self) -> float:
        """Return the loop's time, so that virtual time moves it too."""
        if self._loop is None:
            # Asked for once: each time costs a system call (the C code compares process ids).
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def utc_now(self) -> dt.datetime:
        """Return the wall clock in UTC."""
        return dt.datetime.now(dt.UTC)  # noqa: TID251  # this is the Clock

    def instant(self) -> Instant:
        """Return both readings."""
        return Instant(self.monotonic(), self.utc_now())

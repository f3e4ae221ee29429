"""A clock on the event loop's time, so that virtual time moves it; its wall clock can be set."""

import asyncio
import contextlib
import datetime as dt

from api.clock import Instant
from http_edge.system_clock import SystemClock

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class LoopClock:
    """`rate` makes the monotonic clock run fast or slow; `wall_offset_s` sets the wall clock."""

    def __init__(self, *, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.rate = rate
        self.offset_s = offset_s
        self.wall_offset_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        # the last one that was asked in; a thread has none of its own

    def monotonic(self) -> float:
        return self._now() * self.rate + self.offset_s

    def utc_now(self) -> dt.datetime:
        return EPOCH + dt.timedelta(seconds=self._now() + self.wall_offset_s)

    def _now(self) -> float:
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        assert self._loop is not None, "asked in a thread before any loop"
        return self._loop.time()


class ServerClock(LoopClock):
    """What a whole server tells time by, virtual or not. It begins today, since OpenSSL asks the machine
    which certificates are good; a loop's time that is not virtual began when the machine did."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_offset_s = (SystemClock().utc_now() - EPOCH).total_seconds()
        with contextlib.suppress(RuntimeError):
            self.wall_offset_s -= asyncio.get_running_loop().time()

    def instant(self) -> Instant:
        return Instant(self.monotonic(), self.utc_now())

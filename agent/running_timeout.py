"""A timeout that does not count the time in which the kernel ran other processes."""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PARTS: Final = 10


@asynccontextmanager
async def running_timeout(within_s: float) -> "AsyncIterator[None]":
    """As `asyncio.timeout`, but a turn of the event loop counts for a tenth of the time at most.

    What arrived while this process waited for a processor is read in the turns that follow. A limit of less
    than a second would be over by then, on a node whose processors are all in use.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def count(left: int) -> None:
        nonlocal timer
        if left:
            timer = loop.call_later(within_s / _PARTS, count, left - 1)
        else:
            timeout.reschedule(loop.time())

    async with asyncio.timeout(None) as timeout:
        count(_PARTS)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

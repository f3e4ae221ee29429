"""Waiting for what nothing signals: a log line, the state of another process."""

import asyncio
from collections.abc import Awaitable, Callable

EVERY_S = 0.02
LIMIT_S = 120.0
"""Longer than anything takes on a busy machine."""


async def until(holds: Callable[[], bool], *, within_s: float = LIMIT_S) -> None:
    """Return as soon as it holds; TimeoutError when it does not come to hold."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  # see above
            await asyncio.sleep(EVERY_S)


async def until_async(holds: Callable[[], Awaitable[bool]], *, within_s: float = LIMIT_S) -> None:
    """`until` for what has to be asked over the network."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110  # see above
            await asyncio.sleep(EVERY_S)

"""The wait for the first lists of a cluster, after which the process has most of the objects that it ever has."""

import asyncio
from typing import TYPE_CHECKING, Final

from server.tuning import freeze_garbage_collector

if TYPE_CHECKING:
    from console.console_data import ConsoleData

_LOOK_S: Final = 0.05


async def until_read(data: "ConsoleData") -> None:
    """Return once everything has been read; collections of garbage leave out what is there by then."""
    while not data.is_ready:  # noqa: ASYNC110  # the lists have no event
        await asyncio.sleep(_LOOK_S)
    freeze_garbage_collector()

"""The wait for the first lists of a cluster, after which the process has most of the objects that it ever has."""

import asyncio
from typing import TYPE_CHECKING, Final

from http_edge.tuning import freeze_garbage_collector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from console.data.console_cluster import ConsoleCluster

_LOOK_S: Final = 0.05
_LOOKS_A_WORD: Final = 20


async def until_read(cluster: "ConsoleCluster", tell: "Callable[[Sequence[str]], None]") -> None:
    """Return once everything has been read; collections of garbage leave out what is there by then.

    `tell` is told which lists are still to be read, at most once a second, and when it changes.
    """
    told: list[str] = []
    looks = 0
    while not cluster.is_ready:
        await asyncio.sleep(_LOOK_S)
        looks += 1
        unread = cluster.unread
        if looks % _LOOKS_A_WORD == 0 and unread and unread != told:
            tell(unread)
            told = unread
    freeze_garbage_collector()

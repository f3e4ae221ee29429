"""The wait for the first lists of a cluster, after which the process has most of the objects that it ever has."""

import asyncio
from typing import TYPE_CHECKING, Final

from http_edge.tuning import freeze_garbage_collector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from console.data.console_cluster import ConsoleCluster

_POLL_S: Final = 0.05
_POLLS_A_LINE: Final = 20


async def until_read(cluster: "ConsoleCluster", report: "Callable[[Sequence[str]], None]") -> None:
    """Return once everything has been read; collections of garbage leave out what is there by then.

    `report` is told which lists are still to be read, at most once a second, and when it changes.
    """
    reported: list[str] = []
    polls = 0
    while not cluster.is_ready:
        await asyncio.sleep(_POLL_S)
        polls += 1
        unread = cluster.unread
        if polls % _POLLS_A_LINE == 0 and unread and unread != reported:
            report(unread)
            reported = unread
    freeze_garbage_collector()

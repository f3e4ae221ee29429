"""When the last page of a node's DCGM exporter is written to its inventory. Pure.

An exporter is read every few seconds, and a quiet node must not cost a write for each page. The time goes with
another change of the node's software, alone when the exporter fell silent, and else once in `PERIOD_S`.
"""

from typing import TYPE_CHECKING, Final

from api.status_conditions import parse_time

if TYPE_CHECKING:
    import datetime as dt

PERIOD_S: Final = 600.0
"""5,000 nodes are eight writes a second; their agents' heartbeats are eighty."""


def is_heartbeat_due(
    shown: str | None, heard_at: "dt.datetime", *, now: "dt.datetime", freshness_s: float
) -> bool:
    """Say whether the time is worth a write of its own.

    Args:
        shown: the time that the inventory shows.
        heard_at: when the exporter was last heard, as this process knows it.
        now: for its age.
        freshness_s: the exporter is silent after that long.
    """
    shown_at = parse_time(shown or "")
    if shown_at is None:
        return True
    moved_s = (heard_at.replace(microsecond=0) - shown_at).total_seconds()
    is_silent = (now - heard_at).total_seconds() > freshness_s
    # A time in the future was written by a wrong clock.
    return moved_s != 0 and (is_silent or abs(moved_s) >= PERIOD_S)

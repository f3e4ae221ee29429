"""Figures of pools over the last hour."""

from collections import deque
from typing import TYPE_CHECKING, Final, final

from console.rows import PoolHistory, PoolRow

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from console.data.tables.row_table import TableRow

EVERY_S: Final = 10.0
KEPT: Final = 360
"""An hour."""


@final
class PoolHistories:
    """A ring of figures for each pool that there is."""

    def __init__(self) -> None:
        self._due = 0.0
        self._figures: dict[str, deque[tuple[int, ...]]] = {}
        # pool -> seconds since the epoch, used, reserved, free, withheld, waiting

    def sample(self, pools: "Mapping[str, TableRow]", monotonic: float, now: "dt.datetime") -> None:
        """Take the figures of all pools where it is time."""
        if monotonic < self._due:
            return
        self._due = monotonic + EVERY_S
        for gone in self._figures.keys() - pools.keys():
            del self._figures[gone]
        at = int(now.timestamp())
        for name, row in pools.items():
            if isinstance(row, PoolRow):
                figures = self._figures.setdefault(name, deque(maxlen=KEPT))
                figures.append((at, row.used, row.reserved, row.free, row.withheld, row.waiting))

    def rows(self) -> dict[str, PoolHistory]:
        return {name: _history(figures) for name, figures in self._figures.items()}


def _history(figures: "deque[tuple[int, ...]]") -> PoolHistory:
    at, used, reserved, free, withheld, waiting = zip(*figures, strict=True)
    return PoolHistory(
        at=at, used=used, reserved=reserved, free=free, withheld=withheld, waiting=waiting
    )

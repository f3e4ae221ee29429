"""Reservations that ended lately: the last ones of an hour."""

import datetime as dt
from typing import TYPE_CHECKING, Final, final

from api.status_conditions import format_time
from console.rows import EndedRow

if TYPE_CHECKING:
    from pool.reservations.reservation import Ended

MOST: Final = 200
KEPT: Final = dt.timedelta(hours=1)


@final
class EndedReservations:
    """By id of the reservation, the one that ended first is the first."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[dt.datetime, EndedRow]] = {}

    def add(self, ended: "Ended", now: dt.datetime) -> None:
        reservation = ended.reservation
        self._rows.pop(reservation.id, None)
        self._rows[reservation.id] = (
            now,
            EndedRow(
                namespace=reservation.namespace,
                pod=reservation.name,
                pool=reservation.pool,
                node=reservation.node or "",
                units=reservation.demand.units,
                end=ended.end.value,
                at=format_time(now),
            ),
        )

    def rows(self, now: dt.datetime) -> dict[str, EndedRow]:
        """Return those to show, after dropping the others."""
        for id_ in list(self._rows)[: max(0, len(self._rows) - MOST)]:
            del self._rows[id_]
        for id_, (at, _) in list(self._rows.items()):
            if now - at <= KEPT:
                break
            del self._rows[id_]
        return {id_: row for id_, (_, row) in self._rows.items()}

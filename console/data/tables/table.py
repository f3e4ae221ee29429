"""All rows that a console knows, before anything of them is hidden from anybody, and what changes in them."""

from collections.abc import Mapping
from typing import Final, Literal, final

from console.data.tables.health_rows import HealthEntry
from console.data.tables.pod_rows import WaitEntry
from console.rows import DeviceRow, EndedRow, NodeRow, PoolRow, ReservationRow, ShareRow

TableRow = (
    PoolRow | NodeRow | DeviceRow | WaitEntry | ReservationRow | EndedRow | ShareRow | HealthEntry
)
Section = Literal[
    "pools", "nodes", "devices", "waiting", "reservations", "ended", "shares", "health"
]
SECTIONS: Final[tuple[Section, ...]] = (
    "pools",
    "nodes",
    "devices",
    "waiting",
    "reservations",
    "ended",
    "shares",
    "health",
)
TableRows = Mapping[Section, Mapping[str, TableRow]]
RowChanges = dict[Section, dict[str, tuple[TableRow | None, TableRow | None]]]
"""Section -> key -> row before and after; None where there is none."""


@final
class RowTable:
    """Rows by section and key. Rows are never changed, only replaced."""

    def __init__(self) -> None:
        self._rows: dict[Section, dict[str, TableRow]] = {section: {} for section in SECTIONS}
        self._changes: RowChanges = {}

    def section(self, section: Section) -> Mapping[str, TableRow]:
        """Return the rows of a section, to be read and not kept."""
        return self._rows[section]

    def copy(self) -> TableRows:
        """Return the rows of this moment."""
        return {section: rows.copy() for section, rows in self._rows.items()}

    def set(self, section: Section, key: str, row: TableRow | None) -> None:
        """Set a row; None removes it. An equal row is no change."""
        rows = self._rows[section]
        before = rows.get(key)
        if before == row:
            return
        if row is None:
            del rows[key]
        else:
            rows[key] = row
        changes = self._changes.setdefault(section, {})
        first, _ = changes.get(key, (before, None))
        changes[key] = (first, row)

    def take_changes(self) -> RowChanges:
        """Return what has changed since the last call."""
        changes, self._changes = self._changes, {}
        return changes

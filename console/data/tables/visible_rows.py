"""What a viewer sees of each row: of pods that it may not see, that units are used, by nobody."""

from typing import TYPE_CHECKING, Final, final

import msgspec

from console import rows
from console.data.tables.health_rows import HealthEntry
from console.data.tables.pod_rows import WaitEntry
from pool.what_if.explanation import UnitsReturn, WithheldBy
from telemetry.remedy_texts import RemedyReader, remedy_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.data.state.moments import Moments
    from console.data.tables.table import Section, TableRow
    from console.visibility import Visibility
    from pool.what_if.explanation import AnyRemedy, UnitsHolder

_OF_NODES: Final = frozenset({WithheldBy.CORDONED, WithheldBy.NOT_READY})


@final
class RowViewer:
    """Viewers with equal rights."""

    def __init__(self, visibility: "Visibility", moments: "Moments") -> None:
        self.visibility = visibility
        self._moments = moments
        self._sees_all = visibility.namespaces is None

    def sees_whole(self, section: "Section") -> bool:
        """Say whether rows of a section are seen as they are in the table."""
        match section:
            case "pools":
                return True
            case "nodes":
                return self.visibility.nodes
            case "waiting" | "health":
                return False
            case _:
                return self._sees_all

    def row(self, row: "TableRow") -> "rows.Row | None":
        """Return what is seen of a row of the table; None where nothing is."""
        match row:
            case rows.DeviceRow():
                return self.device(row)
            case rows.NodeRow():
                return self._node(row)
            case WaitEntry():
                return self.wait(row)
            case rows.ReservationRow() | rows.EndedRow():
                return self._reservation(row)
            case rows.ShareRow():
                return row if self.visibility.sees(row.namespace) else None
            case HealthEntry():
                return self._health(row)
            case rows.PoolRow():  # pragma: no branch  # mypy proves that no case is missing
                return row

    def device(self, row: rows.DeviceRow) -> rows.DeviceRow:
        """Return the row with the holders that are seen."""
        if self._sees_all or not row.holders:
            return row
        seen = tuple(holder for holder in row.holders if self.sees_pod(holder))
        return row if len(seen) == len(row.holders) else msgspec.structs.replace(row, holders=seen)

    def wait(self, entry: WaitEntry) -> "rows.WaitingRow | None":
        """Return the row with the remedies as texts."""
        row = entry.row
        if not self.visibility.sees(row.namespace):
            return None
        if not entry.remedies:
            return row
        remedies = self.remedies(entry.remedies, namespace=row.namespace, at=entry.explained_at)
        return msgspec.structs.replace(row, remedies=remedies)

    def remedies(
        self, remedies: "Iterable[AnyRemedy]", *, namespace: str, at: float
    ) -> tuple[str, ...]:
        """Return remedies for a pod as texts.

        Args:
            remedies: of its explanation.
            namespace: of the pod.
            at: Clock.monotonic() of the explanation.
        """
        reader = RemedyReader(
            namespace=namespace,
            sees=self.visibility.sees,
            moment=lambda within_s: f"by {self._moments.time_of_day(at + within_s)}",
        )
        return tuple(
            remedy_text(remedy, reader)
            for remedy in remedies
            if self.visibility.nodes or not _is_reported(remedy)
        )

    def holder(self, holder: "UnitsHolder", at: float) -> rows.HolderEntry:
        """Return who has units.

        Args:
            holder: as it was found.
            at: Clock.monotonic() of the moment.
        """
        left_s = holder.expires_in_s
        is_visible = self.visibility.sees(holder.namespace)
        return rows.HolderEntry(
            pod=holder.ref if is_visible else "",
            units=holder.units,
            is_reserved=holder.is_reserved,
            expires="" if left_s is None else self._moments.text(at + left_s),
            created=holder.created if is_visible else "",
        )

    def sees_pod(self, ref: str) -> bool:
        """Say whether a pod is seen, given as namespace/name."""
        return self.visibility.sees(ref.partition("/")[0])

    def _node(self, row: rows.NodeRow) -> rows.NodeRow:
        if self.visibility.nodes or row.state is rows.NodeRowState.UNKNOWN:
            return row
        return msgspec.structs.replace(row, state=rows.NodeRowState.UNKNOWN)

    def _reservation(
        self, row: rows.ReservationRow | rows.EndedRow
    ) -> rows.ReservationRow | rows.EndedRow:
        if self.visibility.sees(row.namespace):
            return row
        hidden = {"created": ""} if isinstance(row, rows.ReservationRow) else {}
        return msgspec.structs.replace(row, namespace="", pod="", **hidden)

    def _health(self, entry: HealthEntry) -> "rows.HealthRow | None":
        if entry.is_of_node and not self.visibility.nodes:
            return None
        return entry.row if self._sees_all else entry.gist or entry.row


def _is_reported(remedy: "AnyRemedy") -> bool:
    """Say whether a remedy tells the state of a node."""
    return isinstance(remedy, UnitsReturn) and remedy.cause in _OF_NODES

"""Viewers with equal rights: their events are made once, and are the same bytes."""

import asyncio
from typing import TYPE_CHECKING, Final, final

from console.data.streams.event_bytes import change_event, snapshot_parts
from console.data.tables.visible_rows import RowViewer

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.data.state.moments import Moments
    from console.data.streams.viewer import ViewerStream
    from console.data.tables.cluster_rows import ClusterRows
    from console.data.tables.table import RowChanges, Section
    from console.rows import Row
    from console.visibility import Visibility

MOST_LATER: Final = 256 * 1024
"""Bytes of changes after which a new snapshot is made: a viewer takes both."""


@final
class SharedSnapshot:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.later: list[bytes] = []
        """Events since it was taken, also while it was made."""
        self._later_bytes = 0

    def add(self, event: bytes) -> None:
        self.later.append(event)
        self._later_bytes += len(event)

    @property
    def is_old(self) -> bool:
        return self._later_bytes > MOST_LATER


KEEP_ALIVE_S: Final = 15.0


@final
class ViewerGroup:
    def __init__(
        self,
        visibility: "Visibility",
        rows: "ClusterRows",
        moments: "Moments",
        *,
        now: float,
        on_snapshot: "Callable[[ViewerGroup], None]",
    ) -> None:
        """Start without viewers.

        Args:
            visibility: their rights.
            rows: of the cluster.
            moments: both clocks.
            now: Clock.monotonic().
            on_snapshot: called when a snapshot was made, which is kept for the next viewer until it is old.
        """
        self.viewer = RowViewer(visibility, moments)
        self.streams: set[ViewerStream] = set()
        self._rows = rows
        self._moments = moments
        self._following: set[ViewerStream] = set()
        self._snapshot: SharedSnapshot | None = None
        self._in_making: SharedSnapshot | None = None
        self._making = asyncio.Lock()
        self._last_event_at = now
        self._on_snapshot = on_snapshot

    async def follow(self, stream: "ViewerStream") -> None:
        """Hand a snapshot to a stream, and from there on each event. Cancelled, it hands over nothing."""
        async with self._making:
            if self._snapshot is None:
                self._snapshot = await self._make_snapshot()
                self._on_snapshot(self)
            snapshot = self._snapshot
            if stream.is_closed:
                return
            # No await from here on: no event is lost between the snapshot and the next one.
            stream.begin(snapshot.parts, snapshot.later)
            self._following.add(stream)
            self._drop_old()

    def leave(self, stream: "ViewerStream") -> None:
        self.streams.discard(stream)
        self._following.discard(stream)

    def forget_snapshot(self) -> None:
        """Drop the snapshot that is kept for the next viewer."""
        self._snapshot = None

    def publish(self, changes: "RowChanges", now: float) -> None:
        """Send what is seen of the changes, or that there are none where nothing was said for long."""
        seen = self._visible_changes(changes)
        if seen or now - self._last_event_at >= KEEP_ALIVE_S:
            self._last_event_at = now
            self._send(change_event(self._moments.now(), seen))

    def _send(self, event: bytes) -> None:
        for snapshot in (self._snapshot, self._in_making):
            if snapshot is not None:
                snapshot.add(event)
        self._drop_old()
        for stream in list(self._following):
            stream.put(event)

    def _drop_old(self) -> None:
        if self._snapshot is not None and self._snapshot.is_old:
            self._snapshot = None

    async def _make_snapshot(self) -> SharedSnapshot:
        self._in_making = snapshot = SharedSnapshot()
        rows, histories = self._rows.table.copy(), self._rows.histories.rows()
        try:
            snapshot.parts = [part async for part in snapshot_parts(rows, histories, self.viewer)]
        finally:
            self._in_making = None
        return snapshot

    def _visible_changes(self, changes: "RowChanges") -> "dict[Section, dict[str, Row | None]]":
        found: dict[Section, dict[str, Row | None]] = {}
        for section, rows in changes.items():
            seen: dict[str, Row | None] = {}
            for key, (before, after) in rows.items():
                old = self.viewer.row(before) if before is not None else None
                new = self.viewer.row(after) if after is not None else None
                if old != new:
                    seen[key] = new
            if seen:
                found[section] = seen
        return found

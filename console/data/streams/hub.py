"""All streams that are open, and what is sent to them."""

from typing import TYPE_CHECKING, Final, final

from console.console_data import TooManyViewersError
from console.data.streams.event_bytes import snapshot_head
from console.data.streams.partial_picture import gaps_of
from console.data.streams.viewer import ViewerStream
from console.data.streams.viewer_group import ViewerGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.data.state.cluster import ClusterState
    from console.data.tables.cluster_rows import ClusterRows
    from console.rows import ViewerRow
    from console.visibility import Visibility

MOST_STREAMS: Final = 100
MOST_SNAPSHOTS: Final = 4
"""Kept for viewers to come, each with other rights: one of a large cluster has megabytes."""


@final
class StreamHub:
    def __init__(self, cluster: "ClusterState", rows: "ClusterRows", *, origin: str) -> None:
        self._cluster = cluster
        self._rows = rows
        self._origin = origin
        self._since = cluster.moments.now()
        self._groups: dict[Visibility, ViewerGroup] = {}
        self._with_snapshot: list[ViewerGroup] = []
        # those of which a snapshot is kept, the latest last
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def sees(self, namespace: str) -> bool:
        """Say whether a viewer has the pods of a namespace open."""
        return any(visibility.sees(namespace) for visibility in self._groups)

    def open(
        self, viewer: "ViewerRow", visibility: "Visibility", *, drop: "Callable[[], None]"
    ) -> ViewerStream:
        """Return a new stream.

        Raises:
            TooManyViewersError: no further one can be opened.
        """
        if self._count >= MOST_STREAMS:
            raise TooManyViewersError(
                f"{MOST_STREAMS} pages are open, and no further one can be: close one, or try again later"
            )
        group = self._groups.get(visibility) or self._new_group(visibility)
        partial = gaps_of(self._cluster.scope, visibility)
        stream = ViewerStream(
            group.follow,
            lambda: snapshot_head(
                viewer,
                partial,
                origin=self._origin,
                at=self._cluster.moments.now(),
                since=self._since,
            ),
            drop=drop,
            on_close=lambda closed: self._close(closed, visibility),
        )
        group.streams.add(stream)
        self._count += 1
        return stream

    def publish(self) -> None:
        """Send what has changed in the table."""
        changes, now = self._rows.table.take_changes(), self._cluster.now().monotonic
        for group in list(self._groups.values()):
            group.publish(changes, now)

    def _close(self, stream: ViewerStream, visibility: "Visibility") -> None:
        self._count -= 1
        group = self._groups[visibility]
        group.leave(stream)
        if not group.streams:
            del self._groups[visibility]

    def _new_group(self, visibility: "Visibility") -> ViewerGroup:
        group = self._groups[visibility] = ViewerGroup(
            visibility,
            self._rows,
            self._cluster.moments,
            now=self._cluster.now().monotonic,
            on_snapshot=self._keep_snapshot,
        )
        return group

    def _keep_snapshot(self, group: ViewerGroup) -> None:
        """Keep the snapshots that were made last."""
        self._with_snapshot = [
            *(item for item in self._with_snapshot if item is not group and item.streams),
            group,
        ]
        for item in self._with_snapshot[:-MOST_SNAPSHOTS]:
            item.forget_snapshot()
        del self._with_snapshot[:-MOST_SNAPSHOTS]

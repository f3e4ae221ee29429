"""Remains of a pool that is being deleted: devices, node labels, workloads."""

from typing import TYPE_CHECKING, final

from api.names import pool_node_label
from api.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from api.names import PoolName
    from pool.index.figures import IndexFigures


@final
class PoolRemains:
    """Finds every object that names a pool."""

    def __init__(
        self,
        index: "IndexFigures",
        workloads: "Callable[[PoolName], Iterable[str]]",
    ) -> None:
        """Take the caches.

        Args:
            index: the devices that name a pool, and the nodes with their labels.
            workloads: names the objects of a pool in our namespace, as `DaemonSet x`.
        """
        self._index = index
        self._workloads = workloads

    def of(self, pool: "PoolName") -> tuple[str, ...]:
        """Return the remains as texts; empty once the finalizer may go. Reads every node."""
        return tuple(
            text
            for text in (
                _named("device", self._owned(pool)),
                _named("node label", self._labelled(pool)),
                _named("workload", self._workloads(pool)),
            )
            if text
        )

    def _owned(self, pool: "PoolName") -> "Iterator[str]":
        for names in self._index.state(pool).devices_by_node.values():
            yield from names

    def _labelled(self, pool: "PoolName") -> "Iterator[str]":
        label = pool_node_label(pool)
        return (node.name for node in self._index.nodes.values() if label in node.labels)


def _named(noun: str, names: "Iterable[str]") -> str:
    found = list(names)
    if not found:
        return ""
    count = f"1 {noun}" if len(found) == 1 else f"{len(found)} {noun}s"
    return f"{count} ({listed(found)})"

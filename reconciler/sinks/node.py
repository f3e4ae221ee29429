"""`node.index`: Nodes into the index."""

from typing import TYPE_CHECKING, Final, final

from api.names import NodeName
from kube.batches import steps
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kube.unread_objects import UnreadObject
    from pool.index.device_index import DeviceIndex
    from pool.model import NodeFacts


RBAC: Final = (PolicyRule(resources=("nodes",), verbs=("list", "watch")),)


@final
class NodeSink:
    """Keeps the index's nodes equal to the API server's."""

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index
        self._current: set[NodeName] = set()

    def replace_all(self, items: "Sequence[NodeFacts]") -> None:
        """Take over a full list: nodes that are not in it are gone."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[NodeFacts]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        for gone in steps(sorted(self._current - {node.name for node in items})):
            for name in gone:
                self._forget(name)
            yield
        for item in steps(items):
            for node in item:
                self.upsert(node)
            yield

    def last_read(self, unread: "UnreadObject") -> "NodeFacts | None":
        return self._index.nodes.get(NodeName(unread.name))

    def upsert(self, item: "NodeFacts") -> None:
        """Take over a node that is new or changed."""
        self._current.add(item.name)
        self._index.replace_node(item)

    def discard(self, item: "NodeFacts") -> None:
        """Forget a node."""
        self._forget(item.name)

    def _forget(self, name: "NodeName") -> None:
        self._current.discard(name)
        self._index.discard_node(name)

"""`node.index`: Nodes into the index."""

from typing import TYPE_CHECKING, Final, final

from manifests.rbac import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.names import NodeName
    from pool.index import DeviceIndex
    from pool.model import NodeFacts


RBAC: Final = (Rule(resources=("nodes",), verbs=("list", "watch")),)


@final
class NodeFeed:
    """Keeps the index's nodes equal to the API server's."""

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index
        self._known: set[NodeName] = set()

    def replace_all(self, items: "Sequence[NodeFacts]") -> None:
        """Take over a full list: nodes that are not in it are gone."""
        names = {node.name for node in items}
        for name in self._known - names:
            self._index.discard_node(name)
        for node in items:
            self._index.replace_node(node)
        self._known = names

    def upsert(self, item: "NodeFacts") -> None:
        """Take over a node that is new or changed."""
        self._known.add(item.name)
        self._index.replace_node(item)

    def discard(self, item: "NodeFacts") -> None:
        """Forget a node."""
        self._known.discard(item.name)
        self._index.discard_node(item.name)

"""`node.index`: Nodes into the index."""

from typing import TYPE_CHECKING, Final, final

from api.names import NodeName
from manifests.rbac import Rule
from pool.facts import node_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.core import Node
    from pool.index import DeviceIndex


RBAC: Final = (Rule(resources=("nodes",), verbs=("get", "list", "watch")),)


@final
class NodeFeed:
    """Keeps the index's nodes equal to the API server's."""

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index
        self._known: set[NodeName] = set()

    def replace_all(self, items: "Sequence[Node]") -> None:
        """Take over a full list: nodes that are not in it are gone."""
        names = {NodeName(node.metadata.name) for node in items}
        for name in self._known - names:
            self._index.discard_node(name)
        for node in items:
            self._index.replace_node(node_facts(node))
        self._known = names

    def upsert(self, item: "Node") -> None:
        """Take over a node that is new or changed."""
        self._known.add(NodeName(item.metadata.name))
        self._index.replace_node(node_facts(item))

    def discard(self, item: "Node") -> None:
        """Forget a node."""
        self._known.discard(NodeName(item.metadata.name))
        self._index.discard_node(NodeName(item.metadata.name))

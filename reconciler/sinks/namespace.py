"""`namespace.catalog`: labels of Namespaces, for access rules."""

from typing import TYPE_CHECKING, Final, final

from kube.event_source import EventSource
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.foreign.core import Namespace
    from pool.catalog import Catalog


RBAC: Final = (PolicyRule(resources=("namespaces",), verbs=("list", "watch")),)


@final
class NamespaceSink:
    """Keeps the catalog's namespaces equal to the API server's."""

    def __init__(self, catalog: "Catalog") -> None:
        self._catalog = catalog
        self.changes: EventSource[Namespace] = EventSource()
        """Namespaces that were listed, or that changed."""

    def replace_all(self, items: "Sequence[Namespace]") -> None:
        self._catalog.labels_by_namespace = {
            item.metadata.name: item.metadata.labels or {} for item in items
        }
        for item in items:
            self.changes.publish(item)

    def upsert(self, item: "Namespace") -> None:
        self._catalog.labels_by_namespace[item.metadata.name] = item.metadata.labels or {}
        self.changes.publish(item)

    def discard(self, item: "Namespace") -> None:
        self._catalog.labels_by_namespace.pop(item.metadata.name, None)

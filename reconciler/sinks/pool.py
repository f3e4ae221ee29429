"""`pool.index`: GPUPools into the index and the catalog."""

from typing import TYPE_CHECKING, Final, final

from api.names import GROUP, RESOURCE_PREFIX, PoolName
from kube.unread_objects import last_read_state
from manifests.install.rbac import PolicyRule
from pool.facts import pool_facts

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from api.kinds.gpupool import GPUPool
    from kube.unread_objects import UnreadObject
    from pool.catalog import Catalog
    from pool.index.device_index import DeviceIndex


RBAC: Final = (PolicyRule(group=GROUP, resources=("gpupools",), verbs=("list", "watch")),)


@final
class PoolSink:
    """Keeps the index's and the catalog's pools equal to the API server's."""

    def __init__(self, index: "DeviceIndex", catalog: "Catalog") -> None:
        self._index = index
        self._catalog = catalog

    def replace_all(self, items: "Sequence[GPUPool]") -> None:
        """Take over a full list; pools that are not in it are removed."""
        names = {pool.name for pool in items}
        for name in self._catalog.pools.keys() - names:
            del self._catalog.pools[name]
            self._index.discard_pool(name)
        for pool in items:
            self.upsert(pool)

    def last_read(self, unread: "UnreadObject") -> "GPUPool | None":
        return last_read_state(self._catalog.pools.get(PoolName(unread.name)), unread)

    def replace_unread(self, unread: "Collection[UnreadObject]") -> None:
        """Take over the pools that exist and of which no state is known."""
        found = {
            PoolName(item.name): item.resource or RESOURCE_PREFIX + item.name for item in unread
        }
        self._catalog.unread_pools = frozenset(found)
        self._index.replace_unread_pools(found)

    def upsert(self, item: "GPUPool") -> None:
        """Take over a pool.

        Generation and status are no facts of the index, but a change of them triggers `pool.status`.
        """
        if self._catalog.pools.get(item.name) != item:
            self._index.changes.touch_pool(item.name)
        self._catalog.pools[item.name] = item
        self._index.replace_pool(pool_facts(item))

    def discard(self, item: "GPUPool") -> None:
        self._catalog.pools.pop(item.name, None)
        self._index.discard_pool(item.name)

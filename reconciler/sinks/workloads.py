"""`pool.workloads` objects in the control plane's namespace: ConfigMaps and DaemonSets by pool."""

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from api.foreign.workloads import ConfigMap, DaemonSet
from api.names import POOL_LABEL, PoolName
from kube.informer import Selection
from manifests import constants
from reconciler.runtime.event_source import EventSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL_POOLS: Final = PoolName("")
"""Key of the objects that serve all pools of a node."""
LABEL_SELECTOR: Final = f"app.kubernetes.io/component={constants.DEVICE_PLUGIN}"

Live = TypeVar("Live", ConfigMap, DaemonSet)


def selection(namespace: str) -> Selection:
    """Return what the informers of ConfigMaps and DaemonSets watch."""
    return Selection(namespace=namespace, label_selector=LABEL_SELECTOR)


@final
class LiveWorkloads(Generic[Live]):
    """What is there of one kind, by pool and name: a sink of an informer."""

    def __init__(self) -> None:
        self._by_pool: dict[PoolName, dict[str, Live]] = {}
        self._pool_by_name: dict[str, PoolName] = {}
        self.changes: EventSource[PoolName] = EventSource()
        """Pools, `ALL_POOLS` for an object of none; both where the label changed."""

    def of_pool(self, pool: PoolName) -> "Mapping[str, Live]":
        """Return the pool's objects by name."""
        return self._by_pool.get(pool, {})

    def pools(self) -> "list[PoolName]":
        """Return the pools of which something is there."""
        return sorted(self._by_pool)

    def replace_all(self, items: "Sequence[Live]") -> None:
        """Take over a full list: objects that are not in it are gone."""
        for name in sorted(self._pool_by_name.keys() - {item.metadata.name for item in items}):
            self._forget(name)
        for item in items:
            self.upsert(item)

    def upsert(self, item: Live) -> None:
        """Take over an object that is new or changed."""
        name = item.metadata.name
        pool = PoolName(item.metadata.label(POOL_LABEL) or ALL_POOLS)
        if self._pool_by_name.get(name, pool) != pool:
            self._forget(name)
        self._pool_by_name[name] = pool
        by_name = self._by_pool.setdefault(pool, {})
        if by_name.get(name) != item:
            by_name[name] = item
            self.changes.publish(pool)

    def discard(self, item: Live) -> None:
        """Forget an object."""
        self._forget(item.metadata.name)

    def _forget(self, name: str) -> None:
        pool = self._pool_by_name.pop(name, None)
        if pool is None:
            return
        del self._by_pool[pool][name]
        if not self._by_pool[pool]:
            del self._by_pool[pool]
        self.changes.publish(pool)

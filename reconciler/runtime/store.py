"""Stores of watched objects, filled by informers; each publishes the keys of changes.

A reconciler reads whole objects here and is triggered by keys, never by events. Objects are frozen, and an
equal object is no change; `metadata.resourceVersion` is part of the comparison.
"""

import functools
from operator import ne
from sys import intern
from typing import TYPE_CHECKING, Generic, TypeVar, final

import msgspec

from api.kinds.gpudevice import PCI, DeviceUnits, GPUDevice, Link, PoolRef
from api.meta import Condition, OwnerReference
from api.names import DEVICE_NODE_ANNOTATION, DeviceName, NodeName
from reconciler.runtime.batches import steps
from reconciler.runtime.event_source import EventSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kube.informer import KubeObject

T = TypeVar("T", bound="KubeObject")
K = TypeVar("K", bound=str)
G = TypeVar("G")
Item = TypeVar("Item")


@final
class Store(Generic[T]):
    """Objects of a cluster-scoped kind by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, T] = {}
        """Read it, don't keep it."""
        self.changes: EventSource[str] = EventSource()
        """Names of objects."""

    def replace_all(self, items: "Sequence[T]") -> None:
        """Take over a full list; objects that are not in it are removed."""
        names = {item.metadata.name for item in items}
        for name in sorted(self.by_name.keys() - names):
            del self.by_name[name]
            self.changes.publish(name)
        for item in items:
            self.upsert(item)

    def upsert(self, item: T) -> None:
        name = item.metadata.name
        if self.by_name.get(name) != item:
            self.by_name[name] = item
            self.changes.publish(name)

    def discard(self, item: T) -> None:
        if self.by_name.pop(item.metadata.name, None) is not None:
            self.changes.publish(item.metadata.name)


@final
class IndexedStore(Generic[K, G, Item]):
    """Items by key and by group, as client-go's Indexer; publishes the groups of items that changed.

    An item that moves to another group is a change of both. An equal item is no change.
    """

    def __init__(
        self,
        key: "Callable[[Item], K]",
        group: "Callable[[Item], G]",
        *,
        is_change: "Callable[[Item, Item], bool]" = ne,
        prepare: "Callable[[Item], Item] | None" = None,
    ) -> None:
        """Start empty.

        Args:
            key: returns what identifies an item.
            group: returns the group of an item, which is what reconcilers ask for.
            is_change: decides whether a different item of the same group is published.
            prepare: returns the item to keep, equal to the one that came.
        """
        self._key = key
        self._group = group
        self._is_change = is_change
        self._prepare = prepare
        self._by_key: dict[K, Item] = {}
        self._by_group: dict[G, dict[K, Item]] = {}
        self.changes: EventSource[G] = EventSource()

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: K) -> Item | None:
        return self._by_key.get(key)

    def keys(self) -> "AbstractSet[K]":
        """Return a live view."""
        return self._by_key.keys()

    def groups(self) -> "AbstractSet[G]":
        """Return a live view of the groups that have an item."""
        return self._by_group.keys()

    def of(self, group: G) -> "Mapping[K, Item]":
        """Return the items of a group by key: read it, don't keep it."""
        return self._by_group.get(group, {})

    def replace_all(self, items: "Sequence[Item]") -> None:
        """Take over a full list; items that are not in it are removed."""
        for _ in self.replacing(items):
            pass

    def replacing(self, items: "Sequence[Item]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        keys = {self._key(item) for item in items}
        for gone in steps(sorted(self._by_key.keys() - keys)):
            for key in gone:
                self.remove(key)
            yield
        for some in steps(items):
            for item in some:
                self.upsert(item)
            yield

    def upsert(self, item: Item) -> None:
        key, group = self._key(item), self._group(item)
        before = self._by_key.get(key)
        if before == item:
            return
        if before is not None and self._group(before) != group:
            self.remove(key)
            before = None
        if self._prepare is not None:
            item = self._prepare(item)
        self._by_key[key] = item
        self._by_group.setdefault(group, {})[key] = item
        if before is None or self._is_change(before, item):
            self.changes.publish(group)

    def discard(self, item: Item) -> None:
        self.remove(self._key(item))

    def remove(self, key: K) -> None:
        item = self._by_key.pop(key, None)
        if item is None:
            return
        group = self._group(item)
        siblings = self._by_group[group]
        del siblings[key]
        if not siblings:
            del self._by_group[group]
        self.changes.publish(group)


@final
class DeviceStore:
    """GPUDevices by name and by node; 40,000 of them share each part that repeats."""

    def __init__(self) -> None:
        store: IndexedStore[DeviceName, NodeName, GPUDevice] = IndexedStore(
            lambda device: device.name, home_of, prepare=_shared
        )
        self._store = store
        self.changes = store.changes
        """Nodes of devices; both nodes where a device changed its node."""
        self.names = store.keys
        self.nodes = store.groups
        self.get = store.get
        self.replacing = store.replacing
        self.upsert = store.upsert
        self.discard = store.remove

    def __len__(self) -> int:
        return len(self._store)

    def on_node(self, node: NodeName) -> list[GPUDevice]:
        """Return the devices of a node, sorted by name."""
        found = self._store.of(node)
        return [found[name] for name in sorted(found)]


def home_of(device: GPUDevice) -> NodeName:
    """Return the device's node by its status, or until that is written by its annotation."""
    noted = device.metadata.annotation(DEVICE_NODE_ANNOTATION)
    return NodeName(intern(device.status.node_name or noted or ""))


def _shared(device: GPUDevice) -> GPUDevice:
    """Return the device with shared objects for parts that many devices have in common."""
    meta, status = device.metadata, device.status
    owners, links = meta.owner_references, status.links
    return msgspec.structs.replace(
        device,
        metadata=msgspec.structs.replace(
            meta,
            labels=_texts(tuple(meta.labels.items())) if meta.labels else None,
            annotations=_texts(tuple(meta.annotations.items())) if meta.annotations else None,
            owner_references=[_owner(one) for one in owners] if owners else None,
        ),
        status=msgspec.structs.replace(
            status,
            node_name=intern(status.node_name),
            product=intern(status.product),
            compute_capability=intern(status.compute_capability),
            pci=_pci(status.pci),
            links=[_link(one) for one in links] if links else links,
            pool_ref=_pool(status.pool_ref) if status.pool_ref is not None else None,
            units=_units(status.units),
            conditions=[_condition(one) for one in status.conditions or ()] or status.conditions,
        ),
    )


@functools.lru_cache(maxsize=1024)
def _texts(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(items)


@functools.lru_cache(maxsize=1024)
def _owner(owner: OwnerReference) -> OwnerReference:
    return owner


@functools.lru_cache(maxsize=4096)
def _pci(pci: PCI) -> PCI:
    return pci


@functools.lru_cache(maxsize=4096)
def _link(link: Link) -> Link:
    return link


@functools.lru_cache(maxsize=1024)
def _pool(pool: PoolRef) -> PoolRef:
    return pool


@functools.lru_cache(maxsize=4096)
def _units(units: DeviceUnits) -> DeviceUnits:
    return units


@functools.lru_cache(maxsize=16_384)
def _condition(condition: Condition) -> Condition:
    """Return one object for equal conditions: many devices change at once, and alike."""
    return condition

"""Stores of watched objects, filled by informers; each publishes the keys of changes.

A reconciler reads whole objects here and is triggered by keys, never by events. Objects are frozen, and an
equal object is no change; `metadata.resourceVersion` is part of the comparison.
"""

import functools
from sys import intern
from typing import TYPE_CHECKING, Generic, TypeVar, final

import msgspec

from api.kinds.gpudevice import PCI, DeviceUnits, GPUDevice, Link, PoolRef
from api.meta import Condition, OwnerReference
from api.names import DEVICE_NODE_ANNOTATION, DeviceName, NodeName
from reconciler.runtime.batches import steps
from reconciler.runtime.event_source import EventSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kube.informer import KubeObject

T = TypeVar("T", bound="KubeObject")


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
class DeviceStore:
    """GPUDevices by name and by node; 40,000 of them share each part that repeats."""

    def __init__(self) -> None:
        self._by_name: dict[DeviceName, GPUDevice] = {}
        self._by_node: dict[NodeName, dict[DeviceName, GPUDevice]] = {}
        self.changes: EventSource[NodeName] = EventSource()
        """Nodes of devices; both nodes where a device changed its node."""

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> "AbstractSet[DeviceName]":
        """Return a live view of the names."""
        return self._by_name.keys()

    def get(self, name: DeviceName) -> GPUDevice | None:
        return self._by_name.get(name)

    def on_node(self, node: NodeName) -> list[GPUDevice]:
        """Return the devices of a node, sorted by name."""
        found = self._by_node.get(node, {})
        return [found[name] for name in sorted(found)]

    def nodes(self) -> "AbstractSet[NodeName]":
        """Return a live view of the nodes that have a device."""
        return self._by_node.keys()

    def replacing(self, items: "Sequence[GPUDevice]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        names = {item.name for item in items}
        for gone in steps(sorted(self._by_name.keys() - names)):
            for name in gone:
                self.discard(name)
            yield
        for some in steps(items):
            for item in some:
                self.upsert(item)
            yield

    def upsert(self, item: GPUDevice) -> None:
        before = self._by_name.get(item.name)
        if before == item:
            return
        node = home_of(item)
        if before is not None and home_of(before) != node:
            self.discard(item.name)
        item = _shared(item)
        self._by_name[item.name] = item
        self._by_node.setdefault(node, {})[item.name] = item
        self.changes.publish(node)

    def discard(self, name: DeviceName) -> None:
        item = self._by_name.pop(name, None)
        if item is None:
            return
        node = home_of(item)
        siblings = self._by_node[node]
        del siblings[name]
        if not siblings:
            del self._by_node[node]
        self.changes.publish(node)


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

"""The store of GPUDevices: by name and by node, at a bounded size."""

import functools
from sys import intern
from typing import final

import msgspec

from api.kinds.gpudevice import GPUDevice
from api.names import DEVICE_NODE_ANNOTATION, DeviceName, NodeName
from kube.store import IndexedStore


@final
class DeviceStore:
    """GPUDevices by name and by node; 40,000 of them share each part that repeats."""

    def __init__(self) -> None:
        store: IndexedStore[DeviceName, NodeName, GPUDevice] = IndexedStore(
            lambda device: device.name, node_of, prepare=_shared
        )
        self._store = store
        self.changes = store.changes
        """Nodes of devices; both nodes where a device changed its node."""
        self.names = store.keys
        self.nodes = store.groups
        self.get = store.get
        self.replace_in_steps = store.replace_in_steps
        self.upsert = store.upsert
        self.discard = store.remove

    def __len__(self) -> int:
        return len(self._store)

    def on_node(self, node: NodeName) -> list[GPUDevice]:
        """Return the devices of a node, sorted by name."""
        found = self._store.of(node)
        return [found[name] for name in sorted(found)]


def node_of(device: GPUDevice) -> NodeName:
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
            owner_references=[_part(owner) for owner in owners] if owners else None,
        ),
        status=msgspec.structs.replace(
            status,
            node_name=intern(status.node_name),
            product=intern(status.product),
            compute_capability=intern(status.compute_capability),
            pci=_part(status.pci),
            links=[_part(link) for link in links] if links else links,
            pool_ref=_part(status.pool_ref) if status.pool_ref is not None else None,
            units=_part(status.units),
            conditions=[_condition(condition) for condition in status.conditions or ()]
            or status.conditions,
        ),
    )


@functools.lru_cache(maxsize=1024)
def _texts(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(items)


_part = functools.lru_cache(maxsize=16_384)(lambda part: part)
"""Returns one object for equal parts, of any type."""
_condition = functools.lru_cache(maxsize=16_384)(lambda condition: condition)
"""The same for conditions: many devices change at once, and alike."""

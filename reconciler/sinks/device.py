"""`device.index`: GPUDevices into the index and into the store of whole objects.

State and units that another writer changed are a change of the index too: `reconciler.device.state` restores them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.names import GROUP, DeviceName
from kube.batches import steps
from kube.unread_objects import last_read_state
from manifests.install.rbac import PolicyRule
from pool.facts import device_facts
from reconciler.runtime.device_store import DeviceStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.kinds.gpudevice import DeviceState, DeviceUnits, GPUDevice
    from kube.unread_objects import UnreadObject
    from pool.index.device_index import DeviceIndex
    from pool.model import DeviceFacts


RBAC: Final = (PolicyRule(group=GROUP, resources=("gpudevices",), verbs=("list", "watch")),)


@dataclass(frozen=True, slots=True)
class ObservedDevice:
    """A GPUDevice and its facts."""

    facts: "DeviceFacts"
    device: "GPUDevice"


def observe_device(device: "GPUDevice") -> ObservedDevice:
    return ObservedDevice(device_facts(device), device)


@final
class DeviceSink:
    """Keeps the index's devices equal to the API server's."""

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index
        self.store = DeviceStore()
        """The whole objects; updated after the index."""

    def replace_all(self, items: "Sequence[ObservedDevice]") -> None:
        """Take over a full list; devices that are not in it are removed."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[ObservedDevice]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        names = {item.facts.name for item in items}
        for gone in steps(sorted(self.store.names() - names)):
            for name in gone:
                self._forget(name)
            yield
        for entry in steps(items):
            for item in entry:
                self._take_over(item, is_event=False)
            yield

    def last_read(self, unread: "UnreadObject") -> ObservedDevice | None:
        device = last_read_state(self.store.get(DeviceName(unread.name)), unread)
        return observe_device(device) if device is not None else None

    def upsert(self, item: ObservedDevice) -> None:
        """Take over a device; state or units that another writer changed are a change too."""
        self._take_over(item, is_event=True)

    def _take_over(self, item: ObservedDevice, *, is_event: bool) -> None:
        before = self.store.get(item.facts.name)
        if before is None or _reported(before) != _reported(item.device):
            self._index.changes.touch_device(item.facts.name)
        self._index.replace_device(item.facts, is_event=is_event)
        self.store.upsert(item.device)

    def discard(self, item: ObservedDevice) -> None:
        self._forget(item.facts.name)

    def _forget(self, name: "DeviceName") -> None:
        self._index.discard_device(name)
        self.store.discard(name)


def _reported(device: "GPUDevice") -> "tuple[DeviceState, DeviceUnits, str]":
    return device.status.state, device.status.units, device.status.product

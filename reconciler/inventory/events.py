"""What `node.inventory` tells people: each once, when it became so."""

from typing import TYPE_CHECKING, Final, final

from api.meta import ObjectMeta
from api.names import NodeName
from api.text import listed as listing
from inventory.discovery.sources import Source
from kube.events import ObjectReference
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODES
from telemetry.metrics import BAD_FEATURES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.kinds.gpudevice import GPUDevice
    from api.names import DeviceName
    from inventory.discovery.plan import MissingDevice, RejectedDevice, WantedDevice
    from inventory.discovery.sources import BadFeature
    from kube.events import EventRecorder
    from pool.index.device_index import DeviceIndex
    from pool.model import NodeFacts
    from reconciler.runtime.store import DeviceStore

ACTION: Final = "Inventory"
_NAMED_ONE_BY_ONE: Final = 2
"""Devices found at once that are told each on its own; a whole node of them is one event."""


@final
class InventoryEvents:
    """Tells what was found and lost, and what does not make sense."""

    def __init__(
        self, recorder: "EventRecorder", index: "DeviceIndex", devices: "DeviceStore"
    ) -> None:
        self._recorder = recorder
        self._index = index
        self._devices = devices
        self._bad: dict[NodeName, frozenset[BadFeature]] = {}
        # node -> what was told
        self._refused: dict[NodeName, frozenset[RejectedDevice]] = {}
        # node -> what was told
        self._duplicates: dict[DeviceName, frozenset[DeviceName]] = {}
        # device -> those that have a UUID of it, as was told
        for source in Source:
            BAD_FEATURES.labels(source.value)

    def detected(self, found: "Sequence[tuple[ObjectMeta, WantedDevice]]") -> None:
        """Tell of devices that were made, each on its own unless they are many (`detected_many`)."""
        if len(found) > _NAMED_ONE_BY_ONE:
            return
        for metadata, wanted in found:
            text = f"found {wanted.status.product or 'a device'} at {wanted.status.pci.address}"
            self._recorder.normal(
                ObjectReference.to(GPU_DEVICES, metadata),
                EventReason.DEVICE_DETECTED,
                text,
                action=ACTION,
            )

    def detected_many(self, inventory: ObjectMeta, found: "Sequence[WantedDevice]") -> None:
        """Tell of a node full of devices."""
        if len(found) <= _NAMED_ONE_BY_ONE:
            return
        text = f"found {len(found)} devices: {listing(one.name for one in found)}"
        self._recorder.normal(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.DEVICE_DETECTED,
            text,
            action=ACTION,
        )

    def removed(self, node: "NodeFacts", device: "GPUDevice", why: "MissingDevice") -> None:
        """Tell the node that a device is gone."""
        uuid = f" ({device.status.uuid})" if device.status.uuid else ""
        self._recorder.warning(
            ObjectReference.to(NODES, ObjectMeta(name=node.name, uid=node.uid)),
            EventReason.DEVICE_REMOVED,
            f"{device.name}{uuid} is gone: {why.value}",
            action=ACTION,
        )

    def silent(self, inventory: ObjectMeta, found: "Sequence[WantedDevice]") -> None:
        """Tell that facts of devices became stale just now."""
        if not found:
            return
        names = listing(one.name for one in found)
        text = (
            f"{names}: {found[0].staleness.message}; look whether NFD and the node agent run there"
        )
        self._recorder.warning(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.SOURCE_SILENT,
            text,
            action=ACTION,
        )

    def bad(self, inventory: ObjectMeta, bad: "frozenset[BadFeature]") -> None:
        """Tell of values that make no sense and were not told yet."""
        node = NodeName(inventory.name)
        new = bad - self._bad.get(node, frozenset())
        self._remember_bad(node, bad)
        if not new:
            return
        for one in new:
            BAD_FEATURES.labels(one.source).inc()
        text = f"skipped, because it makes no sense: {listing(map(str, new))}; correct it at its source"
        self._recorder.warning(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.BAD_FEATURE,
            text,
            action=ACTION,
        )

    def _remember_bad(self, node: "NodeName", bad: "frozenset[BadFeature]") -> None:
        if bad:
            self._bad[node] = bad
        else:
            self._bad.pop(node, None)

    def refused(self, inventory: ObjectMeta, refused: "Sequence[RejectedDevice]") -> None:
        """Tell of UUIDs that the node's sources tell of and other devices have, and were not told yet."""
        node = NodeName(inventory.name)
        known = self._refused.pop(node, frozenset())
        if refused:
            self._refused[node] = frozenset(refused)
        new = sorted(self._refused.get(node, frozenset()) - known)
        if not new:
            return
        claims = listing(f"{one.uuid} at {one.address} (of {one.owner})" for one in new)
        text = (
            f"not believed, because other devices had these UUIDs first: {claims};"
            " if a card was moved here, delete the device of its old place"
        )
        self._recorder.warning(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.DUPLICATE_UUID,
            text,
            action=ACTION,
        )
        for one in new:
            self._tell_owner(
                one.owner, f"node {node} tells of {one.uuid} too, and gets nothing of it"
            )

    def duplicates(self, devices: "Sequence[GPUDevice]") -> None:
        """Tell devices that claim a UUID of another one, and the other one."""
        for device in devices:
            entry = self._index.devices.get(device.name)
            is_duplicate = entry is not None and entry.is_duplicate
            owners = (
                self._index.devices.owners(entry)
                if entry is not None and is_duplicate
                else frozenset()
            )
            known = self._duplicates.pop(device.name, frozenset())
            if owners:
                self._duplicates[device.name] = owners
            for owner in sorted(owners - known):
                uuid = device.status.uuid or "a UUID of it"
                text = (
                    f"{owner} had {uuid} first: nothing of this device is given out;"
                    f" if the card was moved here, delete {owner}"
                )
                self._recorder.warning(
                    ObjectReference.to(GPU_DEVICES, device.metadata),
                    EventReason.DUPLICATE_UUID,
                    text,
                    action=ACTION,
                )
                self._tell_owner(owner, f"{device.name} claims {uuid} too, and is not given out")

    def _tell_owner(self, name: "DeviceName", text: str) -> None:
        owner = self._devices.get(name)
        if owner is not None:
            text += "; if the card was moved there, delete this device"
            self._recorder.warning(
                ObjectReference.to(GPU_DEVICES, owner.metadata),
                EventReason.DUPLICATE_UUID,
                text,
                action=ACTION,
            )

    def forget(self, node: "NodeName", devices: "Sequence[GPUDevice]") -> None:
        """Remember nothing of a node that is gone."""
        self._bad.pop(node, None)
        self._refused.pop(node, None)
        for device in devices:
            self._duplicates.pop(device.name, None)

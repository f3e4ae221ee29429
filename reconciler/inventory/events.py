"""Events of `node.inventory`: one for each change."""

from typing import TYPE_CHECKING, Final, final

from api.kinds.gpudevice import GPUDevice
from api.meta import ObjectMeta
from api.names import ASSIGNMENT_ANNOTATION, IGNORE_LABEL, NodeName
from api.text import listed as listing
from inventory.discovery.sources import Source
from kube.event_recorder import ObjectReference
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODES
from pool.facts import device_facts
from pool.placement.topology import topology_of
from reconciler.runtime.condition_events import ConditionEvents, record_changes
from telemetry.conditions import InventoryCondition
from telemetry.metrics import BAD_FEATURES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.kinds.gpunodeinventory import GPUNodeInventoryStatus
    from api.names import DeviceName
    from inventory.discovery.plan import DesiredDevice, MissingDevice, RejectedDevice
    from inventory.discovery.sources import BadFeature
    from kube.event_recorder import EventRecorder
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts
    from pool.placement.topology import LinkConflict
    from reconciler.runtime.device_store import DeviceStore

ACTION: Final = "Inventory"
_NAMED_ONE_BY_ONE: Final = 2
"""New devices up to this number get an Event each; more get one Event on the inventory."""
_EVENTS: Final = tuple(
    ConditionEvents(type=type_, good="False", lost=lost, regained=EventReason.NODE_RECOVERED)
    for type_, lost in (
        (InventoryCondition.MANAGED_DISABLED, EventReason.NODE_OPTED_OUT),
        (InventoryCondition.INVENTORY_INCOMPLETE, EventReason.INVENTORY_INCOMPLETE),
    )
)


@final
class InventoryEvents:
    """Records new, removed, stale and duplicate devices, and malformed features."""

    def __init__(
        self, recorder: "EventRecorder", index: "IndexFigures", devices: "DeviceStore"
    ) -> None:
        self._recorder = recorder
        self._index = index
        self._devices = devices
        self._bad: dict[NodeName, frozenset[BadFeature]] = {}
        # node -> what was recorded
        self._contradictions: dict[NodeName, frozenset[LinkConflict]] = {}
        # node -> what was recorded
        self._refused: dict[NodeName, frozenset[RejectedDevice]] = {}
        # node -> what was recorded
        self._duplicates: dict[DeviceName, frozenset[DeviceName]] = {}
        # device -> owners of its UUIDs, as was recorded
        for source in Source:
            BAD_FEATURES.labels(source.value)

    def detected(self, found: "Sequence[tuple[ObjectMeta, DesiredDevice]]") -> None:
        """Record new devices one by one, unless they are many (`detected_many`)."""
        if len(found) > _NAMED_ONE_BY_ONE:
            return
        for metadata, desired in found:
            text = f"found {desired.status.product or 'a device'} at {desired.status.pci.address}"
            self._recorder.normal(
                ObjectReference.to(GPU_DEVICES, metadata),
                EventReason.DEVICE_DETECTED,
                text,
                action=ACTION,
            )

    def detected_many(self, inventory: ObjectMeta, found: "Sequence[DesiredDevice]") -> None:
        """Record many new devices of a node."""
        if len(found) <= _NAMED_ONE_BY_ONE:
            return
        text = f"found {len(found)} devices: {listing(item.name for item in found)}"
        self._recorder.normal(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.DEVICE_DETECTED,
            text,
            action=ACTION,
        )

    def removed(self, node: "NodeFacts", device: "GPUDevice", why: "MissingDevice") -> None:
        """Record on the Node that a device is gone."""
        uuid = f" ({device.status.uuid})" if device.status.uuid else ""
        self._recorder.warning(
            ObjectReference.to(NODES, ObjectMeta(name=node.name, uid=node.uid)),
            EventReason.DEVICE_REMOVED,
            f"{device.name}{uuid} is gone: {why.value}{_decision_text(device)}",
            action=ACTION,
        )

    def forgotten(self, node: NodeName, devices: "Sequence[GPUDevice]") -> None:
        """Record on a Node that is gone which decisions on its devices went with it."""
        decided = [item.name + text for item in devices if (text := _decision_text(item))]
        if decided:
            self._recorder.warning(
                ObjectReference.to(NODES, ObjectMeta(name=node)),
                EventReason.DEVICE_REMOVED,
                f"gone with their node: {listing(decided)}",
                action=ACTION,
            )

    def silent(self, inventory: ObjectMeta, found: "Sequence[DesiredDevice]") -> None:
        """Record that devices became stale."""
        if not found:
            return
        names = listing(item.name for item in found)
        text = f"{names}: {found[0].staleness.message}; check that NFD and the node agent run on the node"
        self._recorder.warning(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.SOURCE_SILENT,
            text,
            action=ACTION,
        )

    def conditions(
        self,
        inventory: ObjectMeta,
        *,
        current: "GPUNodeInventoryStatus",
        written: "GPUNodeInventoryStatus",
    ) -> None:
        """Record the conditions of the node that a write changed."""
        record_changes(
            self._recorder,
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            _EVENTS,
            current=current.conditions,
            written=written.conditions,
            action=ACTION,
        )

    def bad(self, inventory: ObjectMeta, bad: "frozenset[BadFeature]") -> None:
        """Record malformed values that are new."""
        node = NodeName(inventory.name)
        new = bad - self._bad.get(node, frozenset())
        self._remember_bad(node, bad)
        if not new:
            return
        for item in new:
            BAD_FEATURES.labels(item.source).inc()
        text = f"malformed values ignored: {listing(map(str, new))}; correct them at their source"
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

    def contradictory_links(
        self, inventory: ObjectMeta, devices: "Iterable[DesiredDevice]"
    ) -> None:
        """Record links that only one of two devices reports, or that they report differently, and that are new."""
        node = NodeName(inventory.name)
        linked = sorted((item for item in devices if item.status.links), key=lambda item: item.name)
        facts = [
            device_facts(GPUDevice(metadata=ObjectMeta(name=item.name), status=item.status))
            for item in linked
        ]
        reported_before = self._contradictions.pop(node, frozenset())
        found = frozenset(topology_of(facts).conflicts)
        if found:
            self._contradictions[node] = found
        new = sorted(found - reported_before, key=lambda item: (item.device, item.link.peer))
        if not new:
            return
        text = (
            f"devices contradict each other about their links, the weaker report counts:"
            f" {listing(map(_conflict_text, new))}; compare `nvidia-smi topo --matrix` on the node"
        )
        self._recorder.warning(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.CONTRADICTORY_LINKS,
            text,
            action=ACTION,
        )

    def refused(self, inventory: ObjectMeta, refused: "Sequence[RejectedDevice]") -> None:
        """Record reported UUIDs that other devices have, and that are new."""
        node = NodeName(inventory.name)
        reported_before = self._refused.pop(node, frozenset())
        if refused:
            self._refused[node] = frozenset(refused)
        new = sorted(self._refused.get(node, frozenset()) - reported_before)
        if not new:
            return
        claims = listing(f"{item.uuid} at {item.address} (of {item.owner})" for item in new)
        text = (
            f"rejected, because other devices have these UUIDs: {claims};"
            " if a device was moved here, delete the GPUDevice of its former slot"
        )
        self._recorder.warning(
            ObjectReference.to(GPU_NODE_INVENTORIES, inventory),
            EventReason.DUPLICATE_UUID,
            text,
            action=ACTION,
        )
        for item in new:
            self._warn_owner(item.owner, f"node {node} reports {item.uuid} too and is ignored")

    def duplicates(self, devices: "Sequence[GPUDevice]") -> None:
        """Record duplicates on the device that claims a UUID, and on the device that has it."""
        for device in devices:
            entry = self._index.devices.get(device.name)
            is_duplicate = entry is not None and entry.is_duplicate
            owners = (
                self._index.devices.owners(entry)
                if entry is not None and is_duplicate
                else frozenset()
            )
            reported_before = self._duplicates.pop(device.name, frozenset())
            if owners:
                self._duplicates[device.name] = owners
            for owner in sorted(owners - reported_before):
                uuid = device.status.uuid or "a UUID of it"
                text = (
                    f"{owner} had {uuid} first: this device is not allocated;"
                    f" if the device was moved here, delete {owner}"
                )
                self._recorder.warning(
                    ObjectReference.to(GPU_DEVICES, device.metadata),
                    EventReason.DUPLICATE_UUID,
                    text,
                    action=ACTION,
                )
                self._warn_owner(owner, f"{device.name} claims {uuid} too and is not allocated")

    def _warn_owner(self, name: "DeviceName", text: str) -> None:
        owner = self._devices.get(name)
        if owner is not None:
            text += "; if the device was moved there, delete this GPUDevice"
            self._recorder.warning(
                ObjectReference.to(GPU_DEVICES, owner.metadata),
                EventReason.DUPLICATE_UUID,
                text,
                action=ACTION,
            )

    def forget(self, node: "NodeName", devices: "Sequence[GPUDevice]") -> None:
        """Remember nothing of a node that is gone."""
        self._bad.pop(node, None)
        self._contradictions.pop(node, None)
        self._refused.pop(node, None)
        for device in devices:
            self._duplicates.pop(device.name, None)


def _decision_text(device: GPUDevice) -> str:
    """Return what was decided on a device, and has to be repeated where it comes back; empty for nothing."""
    ignored = [f"label {IGNORE_LABEL}=true"] if device.is_ignored else []
    assigned = (
        [f"annotation {ASSIGNMENT_ANNOTATION}={device.assignment}"] if device.assignment else []
    )
    decided = " and ".join(ignored + assigned)
    return f" (it had {decided}: repeat it if the device comes back)" if decided else ""


def _conflict_text(conflict: "LinkConflict") -> str:
    link, answer = conflict.link, conflict.answer
    if link.peer == conflict.device:
        return f"{conflict.device} reports a link to itself"
    reported = f"{conflict.device} reports {link.type} x{link.count} to {link.peer}"
    return f"{reported}, which reports {f'{answer.type} x{answer.count}' if answer else 'none'}"

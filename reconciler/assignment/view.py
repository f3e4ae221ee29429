"""`inventory.assignment.decide.NodeView` of a node, from stores and the allocation state."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.names import DEVICE_NODE_LABEL, RESOURCE_PREFIX, PodUid, PoolName, ReservationId
from api.status_conditions import find_condition
from inventory.assignment.decide import NodeView
from reconciler.assignment.other_plugin import label_fault, plugin_users
from reconciler.controller_spec import ControllerContext
from reconciler.pool.validation_cache import validity_cache
from telemetry.conditions import DeviceCondition, InventoryCondition, ReadyForPooling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import GPUPool
    from api.meta import Condition
    from api.names import DeviceName, NodeName
    from inventory.pools.validation import PoolValidityLookup
    from kube.store import Store
    from pool.allocation_reader import AllocationReader
    from pool.index.device_index import DeviceIndex
    from pool.index.devices import DeviceEntry
    from reconciler.runtime.device_store import DeviceStore

_JUDGED_BEFORE: Final = {
    ReadyForPooling.NO_DEVICES.value,
    ReadyForPooling.INVENTORY_INCOMPLETE.value,
    ReadyForPooling.VALIDATING.value,
}
"""Reasons of a node whose devices have just been found, until it is judged with them."""
_UNKNOWN_POOL: Final = frozenset({"an unknown pool"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentSources:
    """Stores that assignment reads."""

    devices: "DeviceStore"
    inventories: "Store[GPUNodeInventory]"
    pools: "Mapping[PoolName, GPUPool]"
    """`Catalog.pools`."""
    index: "DeviceIndex"
    reader: "AllocationReader"
    validity_of: "PoolValidityLookup"

    def view(self, node: "NodeName", devices: "Sequence[GPUDevice]") -> NodeView:
        facts = self.index.nodes.get(node)
        users: dict[DeviceName, frozenset[str]] = {}
        duplicates: set[DeviceName] = set()
        for device in devices:
            entry = self.index.devices.get(device.name)
            found = (
                self._users(entry) | self._unaccounted_resources(node, device)
                if entry
                else _UNKNOWN_POOL
            )
            if found:
                users[device.name] = found
            if entry is not None and entry.is_duplicate:
                duplicates.add(device.name)
        return NodeView(
            node=node,
            devices=devices,
            labels=facts.labels if facts is not None else None,
            unready=self._unready(node, devices),
            duplicates=duplicates,
            users=users,
            plugin=label_fault(facts) if facts is not None else "",
            plugin_users=plugin_users(self.inventories.by_name.get(node), devices),
        )

    def has_operands(self, node: "NodeName") -> bool:
        """Say whether a ClusterPolicy brings operands to the node, NVIDIA's device plugin among them."""
        facts = self.index.nodes.get(node)
        return facts is not None and bool(facts.deploy_labels)

    def is_used(self, node: "NodeName", device: "GPUDevice") -> bool:
        """Say whether a pod or reservation may have a unit of the node's device."""
        entry = self.index.devices.get(device.name)
        return entry is None or bool(self._users(entry) | self._unaccounted_resources(node, device))

    def awaits_validation(self, node: "NodeName", devices: "Sequence[GPUDevice]") -> bool:
        """Say whether the node's readiness with these devices, or their health, has still to be judged."""
        found = [device for device in devices if device.metadata.label(DEVICE_NODE_LABEL)]
        if not found:
            return False
        inventory = self.inventories.by_name.get(node)
        condition = readiness_of(inventory) if inventory is not None else None
        if condition is None or condition.reason in _JUDGED_BEFORE:
            return True
        return not all(
            find_condition(item.status.conditions, DeviceCondition.HEALTHY) for item in found
        )

    def _users(self, entry: "DeviceEntry") -> frozenset[str]:
        """Return the resources under which units of the device are in use or reserved."""
        found: set[str] = set()
        for holder in self.index.claims.holders(entry):
            pod = self.reader.pods.get(PodUid(holder))
            reservation = self.reader.ledger.get(ReservationId(holder))
            if pod is not None:
                found.add(pod.demand.resource)
            elif reservation is not None:
                found.add(reservation.demand.resource)
            else:
                found |= _UNKNOWN_POOL
        return frozenset(found)

    def _unaccounted_resources(self, node: "NodeName", device: "GPUDevice") -> frozenset[str]:
        """Return the pool's resources of which pods use unknown devices of the node: this device may be one."""
        ref = device.status.pool_ref
        if ref is None:
            return frozenset()
        pool = self.pools.get(PoolName(ref.name))
        resources = pool.resources if pool is not None else (RESOURCE_PREFIX + ref.name,)
        return frozenset(
            resource for resource in resources if self.index.unaccounted.at(resource, node)
        )

    def _unready(self, node: "NodeName", devices: "Sequence[GPUDevice]") -> str:
        inventory = self.inventories.by_name.get(node)
        if inventory is None:
            # Devices made by hand have no inventory; those of the inventory come before it.
            is_inventoried = any(device.metadata.label(DEVICE_NODE_LABEL) for device in devices)
            return "it has no GPUNodeInventory yet" if is_inventoried else ""
        condition = readiness_of(inventory)
        if condition is None:
            return "nothing is known of its software yet"
        return "" if condition.status == "True" else condition.reason


def readiness_of(inventory: "GPUNodeInventory") -> "Condition | None":
    """Return the condition ReadyForPooling."""
    return find_condition(inventory.status.conditions, InventoryCondition.READY_FOR_POOLING)


def assignment_sources(context: ControllerContext) -> AssignmentSources:
    return AssignmentSources(
        devices=context.stores.devices,
        inventories=context.stores.inventories,
        pools=context.catalog.pools,
        index=context.stores.index,
        reader=context.reader,
        validity_of=context.shared(validity_cache).validity_of,
    )

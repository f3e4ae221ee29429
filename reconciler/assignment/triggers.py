"""Triggers of assignment: the nodes to reconcile when something changes that assignment depends on.

| changed | nodes |
|---|---|
| a device: its facts, labels, annotation, owner, health, our conditions; not its units and state | its own |
| a pool: its selectors, its deletion, its validity | all nodes: it may take devices there, or they wait for a decision |
| a node's object | its own |
| ReadyForPooling, devices that pods have by NVIDIA's own device plugin | its own |
| use of a draining device; a device with a duplicate UUID | its own |
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.names import NodeName, PoolName
from kube.event_source import EventSource
from reconciler.assignment.view import assignment_sources, readiness_of
from reconciler.controller_spec import ControllerContext
from reconciler.pool.index_changes import index_changes
from reconciler.pool.validation_cache import validity_cache
from reconciler.sinks.inventory import plugin_allocations
from telemetry.conditions import DeviceCondition

if TYPE_CHECKING:
    from api.kinds.device_selector import DeviceSelector
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import Assignment, GPUPool
    from api.meta import LabelSelector
    from api.names import DeviceName
    from inventory.pools.validation import PoolValidity
    from reconciler.assignment.view import AssignmentSources


@dataclass(frozen=True, slots=True)
class _PoolView:
    """The part of a pool that assignment depends on."""

    uid: str
    created: str | None
    device_selector: "DeviceSelector"
    node_selector: "LabelSelector | None"
    assignment: "Assignment"
    max_devices_per_node: int | None
    is_terminating: bool
    resource: str
    validity: "PoolValidity"


_InventoryView = tuple[object, ...]
"""Status and reason of ReadyForPooling, the membership, which another writer may have changed, and what pods have by
NVIDIA's own device plugin."""


_CONDITIONS: Final = frozenset(
    {
        DeviceCondition.ASSIGNED.value,
        DeviceCondition.DRAINING.value,
        DeviceCondition.HEALTHY.value,
    }
)


def _device_view(device: "GPUDevice") -> tuple[object, ...]:
    """Return the part of a device that assignment depends on; units change with every pod and are not part."""
    meta, status = device.metadata, device.status
    return (
        meta.name,
        meta.uid,
        meta.labels,
        device.assignment,
        status.pool_ref,
        status.managed,
        status.inventory_id,
        status.uuid,
        status.product,
        status.memory_mib,
        status.compute_capability,
        status.pci,
        status.mig,
        tuple(condition for condition in status.conditions or () if condition.type in _CONDITIONS),
    )


def _inventory_view(inventory: "GPUNodeInventory") -> _InventoryView:
    condition = readiness_of(inventory)
    readiness = (condition.status, condition.reason) if condition is not None else None
    return (readiness, inventory.status.pools, plugin_allocations(inventory))


@final
class AssignmentRouter:
    """Maps changes to the nodes to reconcile. Create it once its sources are in sync."""

    def __init__(self, sources: "AssignmentSources") -> None:
        self._sources = sources
        self.nodes: EventSource[NodeName] = EventSource()
        """Nodes whose devices are to be assigned again."""
        self._pools: dict[PoolName, _PoolView] = {}
        self._devices: dict[NodeName, tuple[object, ...]] = {}
        self._unread = set(sources.index.unread_pools)
        self._inventories: dict[NodeName, _InventoryView] = {}
        self._awaited: set[NodeName] = set()
        # nodes of which any newer device is waited for
        self._unresolved: dict[DeviceName, bool] = {}
        # device -> was it a duplicate; of those that were draining or duplicates when last read
        for pool in sources.pools.values():
            self._pools[pool.name] = self._view_of(pool)
        for node in sources.devices.nodes():
            self._store_view(node)
        for name, inventory in sources.inventories.by_name.items():
            self._inventories[NodeName(name)] = _inventory_view(inventory)

    def devices_changed(self, node: str) -> None:
        """Take note of a change of the node's devices: the listener of `DeviceStore`."""
        name = NodeName(node)
        if self._store_view(name) or name in self._awaited:
            self._awaited.discard(name)
            self.nodes.publish(name)

    def await_devices(self, node: NodeName) -> None:
        """Have the node reconciled at the next change of its devices, whatever it is: a write had a Conflict."""
        self._awaited.add(node)

    def inventory_changed(self, name: str) -> None:
        """Take note of a change of an inventory: the listener of its `Store`."""
        node = NodeName(name)
        before = self._inventories.pop(node, None)
        inventory = self._sources.inventories.by_name.get(name)
        now = _inventory_view(inventory) if inventory is not None else None
        if now is not None:
            self._inventories[node] = now
        if before != now:
            self.nodes.publish(node)

    def pool_changed(self, name: str) -> None:
        """Take note of a pool that is new, changed or deleted, or whose validity changed."""
        pool = PoolName(name)
        before = self._pools.pop(pool, None)
        item = self._sources.pools.get(pool)
        now = self._view_of(item) if item is not None else None
        if now is not None:
            self._pools[pool] = now
        was_unread, is_unread = pool in self._unread, pool in self._sources.index.unread_pools
        (self._unread.add if is_unread else self._unread.discard)(pool)
        if before == now and was_unread == is_unread:
            return
        for node in list(self._sources.devices.nodes()):
            self.nodes.publish(node)

    def node_changed(self, node: NodeName) -> None:
        """Handle a change of a node in the index."""
        if node in self._sources.devices.nodes():
            self.nodes.publish(node)

    def units_changed(self, name: "DeviceName") -> None:
        """Handle a change of a device in the index: use of a draining device, and duplicates."""
        entry = self._sources.index.devices.get(name)
        was_duplicate = self._unresolved.pop(name, False)
        if entry is None:
            return
        if entry.is_draining or entry.is_duplicate:
            self._unresolved[name] = entry.is_duplicate
        if entry.is_draining or entry.is_duplicate != was_duplicate:
            self.nodes.publish(entry.facts.node)

    def _store_view(self, node: NodeName) -> bool:
        """Store the view of the node's devices; say whether it changed."""
        view = tuple(_device_view(device) for device in self._sources.devices.on_node(node))
        if self._devices.get(node, ()) == view:
            return False
        if view:
            self._devices[node] = view
        else:
            del self._devices[node]
        return True

    def _view_of(self, pool: "GPUPool") -> _PoolView:
        return _PoolView(
            uid=pool.metadata.uid,
            created=pool.metadata.creation_timestamp,
            device_selector=pool.spec.device_selector,
            node_selector=pool.spec.node_selector,
            assignment=pool.spec.assignment,
            max_devices_per_node=pool.spec.allocation.max_devices_per_node,
            is_terminating=pool.metadata.deletion_timestamp is not None,
            resource=pool.resource_name,
            validity=self._sources.validity_of(pool.name),
        )


def assignment_router(context: ControllerContext) -> AssignmentRouter:
    router = AssignmentRouter(context.shared(assignment_sources))
    validity, index = context.shared(validity_cache), context.shared(index_changes)
    context.follow(context.stores.devices.changes, router.devices_changed)
    context.follow(context.stores.inventories.changes, router.inventory_changed)
    context.follow(validity.changes, router.pool_changed)
    context.follow(validity.pools, router.pool_changed)
    context.follow(index.nodes, router.node_changed)
    context.follow(index.devices, router.units_changed)
    return router

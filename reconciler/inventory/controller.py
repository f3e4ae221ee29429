"""`node.inventory`: the GPUDevices and the GPUNodeInventory of a node, from its sources.

`inventory.discovery` decides; this module gathers, writes differences and records. A device is created in two
writes, object and status; a device that a crash left without its status is found by its name and gets it.
Design: docs/design/0005-from-slot-to-pool.md.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpunodeinventory import GPUNodeInventoryStatus
from api.names import GROUP, NodeName
from inventory.discovery.labels import label_report
from inventory.discovery.merge import merge, merged_labels
from inventory.discovery.node import (
    FRESH_FOR,
    InventoryParameters,
    has_inventory,
    incompleteness_of,
    is_managed,
    passed_through,
)
from inventory.discovery.plan import addresses_of, is_ours, plan_inventory, uuids_of
from inventory.identity import device_name
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import (
    DEVICES,
    FEATURES,
    INVENTORIES,
    ControllerContext,
    ControllerSpec,
)
from reconciler.inventory.events import InventoryEvents
from reconciler.inventory.gauges import InventoryGauges
from reconciler.inventory.label_sources import source_labels
from reconciler.inventory.status import (
    CompletenessFacts,
    device_body,
    inventory_body,
    inventory_status,
    newly_stale,
    shows_device,
    shows_inventory,
)
from reconciler.inventory.writer import InventoryWriter
from reconciler.pool.index_changes import NODES as INDEX_NODES
from reconciler.runtime.concurrent_writes import DEVICES_AT_A_TIME, write_in_order
from reconciler.runtime.expectations import SEEN_WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.clock import Instant
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.meta import ObjectMeta
    from inventory.discovery.merge import MergedReport
    from inventory.discovery.plan import DesiredDevice, DevicePlan
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from kube.store import Store
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts
    from reconciler.controller_spec import Reconcile
    from reconciler.runtime.device_store import DeviceStore
    from reconciler.sinks.node_feature import NodeFeatureSink

RBAC: Final = (
    PolicyRule(resources=("nodes",), verbs=("get",)),
    PolicyRule(
        group=GROUP,
        resources=("gpudevices", "gpunodeinventories"),
        verbs=("create", "delete", "list", "patch", "watch"),
    ),
    PolicyRule(
        group=GROUP,
        resources=("gpudevices/status", "gpunodeinventories/status"),
        verbs=("patch",),
    ),
)

IGNORED_GONE_FOR_S: Final = 30 * 86_400.0
"""Seconds, under one leader, after which a device with the label `ignore` is deleted with its Node: a repair of a machine
takes days, and names of autoscaled nodes do not come back."""
REFUSED_AGAIN_S: Final = 10.0
"""Seconds until a node with a rejected UUID is reconciled again: the end of the duplicate triggers nothing."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStores:
    """Stores that the controller reads."""

    index: "IndexFigures"
    """Index for nodes, and for claimants of UUIDs."""
    devices: "DeviceStore"
    inventories: "Store[GPUNodeInventory]"
    features: "NodeFeatureSink"


@final
class NodeInventory:
    """Writes the devices and the inventory of one node."""

    def __init__(
        self,
        client: "KubeClient",
        stores: DeviceStores,
        recorder: "EventRecorder",
        *,
        now: "Callable[[], Instant]",
        parameters: InventoryParameters,
    ) -> None:
        self._stores = stores
        self._now = now
        self._parameters = parameters
        self._writer = InventoryWriter(client, stores.devices, stores.inventories, now=now)
        self._events = InventoryEvents(recorder, stores.index, stores.devices)
        self._gauges = InventoryGauges()
        self._gone_since: dict[NodeName, float] = {}
        # node that is gone and left something -> when that was seen

    def forget_all(self) -> None:
        """Clear the gauges: only the leader shows them."""
        self._gauges.forget_all()

    async def reconcile(self, name: "NodeName") -> float | None:
        """Write devices and inventory; reconcile again when a source may have gone silent."""
        node = self._stores.index.nodes.get(name)
        devices = self._stores.devices.on_node(name)
        inventory = self._stores.inventories.by_name.get(name)
        if not self._writer.are_written(name):
            return SEEN_WITHIN_S
        self._gauges.show(name, devices, inventory)
        if node is None:
            return await self._remove_all(name, devices, inventory)
        self._gone_since.pop(name, None)
        merged = self._merge(node, devices)
        devices = self._with_namesakes(name, devices, merged)
        managed = is_managed(node.labels, self._parameters)
        uuids = uuids_of(devices, merged)
        plan = plan_inventory(
            name,
            devices,
            merged,
            is_managed=managed,
            claimants={uuid: self._stores.index.devices.with_part(uuid) for uuid in uuids},
        )
        if has_inventory(merged, devices, plan, is_visible=inventory is not None):
            await self._write_devices(node, plan)
            metadata = await self._write_inventory(node, plan, merged, devices=devices)
            if metadata is not None:
                self._record(metadata, plan, merged)
        self._events.duplicates(devices)
        next_s = self._next_read_s(merged)
        return min(next_s or math.inf, REFUSED_AGAIN_S) if plan.refused else next_s

    def _record(self, metadata: "ObjectMeta", plan: "DevicePlan", merged: "MergedReport") -> None:
        self._events.detected_many(metadata, plan.create)
        self._events.silent(metadata, newly_stale(plan))
        self._events.bad(metadata, merged.bad)
        self._events.refused(metadata, plan.refused)
        desired = (*(item for _, item in plan.keep), *plan.create)
        self._events.contradictory_links(metadata, desired)

    def _merge(self, node: "NodeFacts", devices: "Sequence[GPUDevice]") -> "MergedReport":
        features = self._stores.features.on_node(node.name)
        labels = source_labels(node)
        return merge(
            label_report(merged_labels(labels, features)),
            features,
            addresses=addresses_of(devices),
            now=self._now().utc,
            fresh_for=FRESH_FOR,
        )

    def _with_namesakes(
        self, node: "NodeName", devices: "list[GPUDevice]", merged: "MergedReport"
    ) -> "list[GPUDevice]":
        """Return the devices, and those elsewhere whose name one of this node would get."""
        names = {device_name(node, address) for address in merged.listed}
        others = names - {device.name for device in devices}
        found = (self._stores.devices.get(name) for name in sorted(others))
        return [*devices, *(item for item in found if item is not None)]

    async def _write_devices(self, node: "NodeFacts", plan: "DevicePlan") -> None:
        now = self._now().utc
        for device, why in plan.delete:
            await self._writer.delete_device(node.name, device)
            self._events.removed(node, device, why)
        made: dict[str, tuple[ObjectMeta, DesiredDevice]] = {}

        async def create(desired: "DesiredDevice") -> None:
            metadata = await self._writer.create_device(node.name, desired.name)
            if metadata is None:
                return
            status = device_body(desired, metadata, now=now)
            await self._writer.apply_device(node.name, desired.name, status)
            made[desired.name] = (metadata, desired)

        async def update(kept: "tuple[GPUDevice, DesiredDevice]") -> None:
            device, desired = kept
            await self._writer.disown(GPU_DEVICES, device.metadata)
            if not shows_device(device, desired, now):
                current = device.status.conditions
                status = device_body(desired, device.metadata, current=current, now=now)
                await self._writer.apply_device(node.name, desired.name, status)

        await write_in_order(plan.create, create, at_a_time=DEVICES_AT_A_TIME)
        await write_in_order(plan.keep, update, at_a_time=DEVICES_AT_A_TIME)
        self._events.detected([made[item.name] for item in plan.create if item.name in made])

    async def _write_inventory(
        self,
        node: "NodeFacts",
        plan: "DevicePlan",
        merged: "MergedReport",
        *,
        devices: "Sequence[GPUDevice]",
    ) -> "ObjectMeta | None":
        """Create or update the node's inventory; return its metadata, None of one that cannot be read."""
        inventory = self._stores.inventories.by_name.get(node.name)
        if inventory is None:
            created = await self._writer.create_inventory(node.name)
            if created is None:
                return None
            metadata = created
            current = GPUNodeInventoryStatus()
        else:
            metadata, current = inventory.metadata, inventory.status
            await self._writer.disown(GPU_NODE_INVENTORIES, metadata)
        by_hand = [device for device in devices if not is_ours(device) and device.node == node.name]
        desired = [*(item for _, item in plan.keep), *plan.create]
        statuses = [*(item.status for item in desired), *(item.status for item in by_hand)]
        incomplete = incompleteness_of(merged, statuses, plan.refused)
        names = [*(item.name for item in desired), *(item.name for item in by_hand)]
        completeness_facts = CompletenessFacts(
            names=names,
            faulted=sum(device.is_faulted for device in devices if device.name in names),
            managed=is_managed(node.labels, self._parameters),
            managed_label=self._parameters.managed_label,
            kernel=node.kernel,
            incomplete=incomplete,
            passed_through=passed_through(merged, statuses),
        )
        now = self._now().utc
        status = inventory_status(
            completeness_facts, merged, current, generation=metadata.generation, now=now
        )
        if inventory is None or not shows_inventory(current, status, merged):
            await self._writer.apply_inventory(node.name, inventory_body(status))
            self._events.conditions(metadata, current=current, written=status)
        return metadata

    async def _remove_all(
        self,
        name: "NodeName",
        devices: "Sequence[GPUDevice]",
        inventory: "GPUNodeInventory | None",
    ) -> float | None:
        """Delete the objects of a node that is gone; return the seconds until then, if it is too early.

        A Node that is deleted and created again, as when kubelet registers again, keeps its devices, with their
        pools and annotations. One that comes back later keeps those with the label `ignore`: they are known to be bad.
        """
        ours = [device for device in devices if is_ours(device)]
        if not ours and inventory is None:
            self._forget(name, devices)
            return None
        now = self._now().monotonic
        gone_s = now - self._gone_since.setdefault(name, now)
        left_s = self._parameters.gone_for.total_seconds() - gone_s
        ignored_left_s = max(left_s, IGNORED_GONE_FOR_S - gone_s)
        if left_s > 0:
            return left_s
        leaving = [item for item in ours if not item.is_ignored or ignored_left_s <= 0]
        if not leaving and inventory is None:
            return ignored_left_s
        if await self._writer.has_node(name):
            self._gone_since.pop(name, None)
            return None
        for device in leaving:
            await self._writer.delete_device(name, device)
        self._events.forgotten(name, leaving)
        if inventory is not None:
            await self._writer.delete_inventory(name, inventory.metadata)
        if len(leaving) < len(ours):
            return ignored_left_s
        self._forget(name, devices)
        return None

    def _forget(self, name: "NodeName", devices: "Sequence[GPUDevice]") -> None:
        self._gone_since.pop(name, None)
        self._events.forget(name, devices)

    def _next_read_s(self, merged: "MergedReport") -> float | None:
        """Return when a heartbeat that does not come would be missed."""
        if merged.heartbeat is None:
            return None
        whole_s = FRESH_FOR.total_seconds()
        if merged.is_silent:
            return whole_s
        age_s = (self._now().utc - merged.heartbeat).total_seconds()
        return whole_s - age_s + 1.0


WORKERS: Final = 8
"""Nodes at a time whose devices are written; 5,000 nodes that join at once are 40,000 devices."""


def _build(context: ControllerContext) -> "Reconcile":
    stores = context.stores
    inventory = NodeInventory(
        context.client,
        DeviceStores(
            index=context.index,
            devices=stores.devices,
            inventories=stores.inventories,
            features=stores.features,
        ),
        context.recorder,
        now=context.now,
        parameters=context.settings.inventory,
    )
    context.ending.callback(inventory.forget_all)
    return inventory.reconcile


def _initial(context: ControllerContext) -> "list[NodeName]":
    """Return all nodes, and nodes that are gone and may have left something."""
    stores = context.stores
    return [
        *(node.name for node in context.index.nodes.values()),
        *stores.devices.nodes(),
        *map(NodeName, stores.inventories.by_name),
    ]


SPEC: Final = ControllerSpec(
    name="node.inventory",
    rbac=RBAC,
    triggers=(DEVICES, INVENTORIES, FEATURES, INDEX_NODES),
    initial=_initial,
    workers=WORKERS,
    build=_build,
)

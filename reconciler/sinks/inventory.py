"""`node.allocations`: actual allocations of pods, as nodes report them, into the allocation state.

The settings of the nodes' kubelets go into the device index.

Reports are part of the status of GPUNodeInventories, which this sink stores as well. A change of the agent's reports
alone, of allocations or of processes with the driver open, is not published: it triggers no reconcile of the inventory.
What pods have by NVIDIA's own device plugin is published: a device joins a pool once none has it.
Decisions are `pool.pods.reported`'s (docs/design/0007-actual-allocations.md).
"""

from typing import TYPE_CHECKING, final

import msgspec
import structlog

from api.driver_upgrade import is_of_nvidias_plugin
from api.kinds.gpunodeinventory import GPUNodeInventoryStatus
from api.names import NodeName
from kube.batches import steps
from kube.event_recorder import ObjectReference
from kube.resources import PODS
from kube.store import Store
from pool.facts import kubelet_of, reports_of
from reconciler.sinks.pod import ACTION, report_shared_units
from telemetry.metrics import ALLOCATION_MISMATCHES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.kinds.gpunodeinventory import ContainerDevices, GPUNodeInventory
    from kube.event_recorder import EventRecorder
    from kube.unread_objects import UnreadObject
    from pool.allocation_state import AllocationState
    from pool.pods.reported import AllocationMismatch

_log = structlog.get_logger()


def record_mismatch(found: "AllocationMismatch", recorder: "EventRecorder") -> None:
    """Log a pod's units that do not agree with its assigned devices; count and warn where this replica leads.

    The allocation state calls this in the middle of a transition, so it only records.
    """
    pod = found.pod
    if found.foreign:
        _log.warning(
            "reported units ignored: no device of the node has them",
            pod=pod.ref,
            uid=pod.uid,
            node=pod.node,
            units=found.foreign,
        )
    if not found.unassigned:
        return
    _log.warning(
        "pod has other units than it was bound with",
        pod=pod.ref,
        uid=pod.uid,
        node=pod.node,
        units=found.unassigned,
        promised=pod.devices,
    )
    if found.pool is not None and not recorder.is_muted:
        ALLOCATION_MISMATCHES.labels(found.pool).inc()
    assigned = sorted({unit for device in (pod.devices or {}).values() for unit in device})
    note = (
        f"kubelet on node {pod.node} allocated {', '.join(sorted(found.unassigned))} instead of"
        f" {', '.join(assigned)}; accounting follows kubelet"
    )
    recorder.warning(
        ObjectReference.to(PODS, pod), EventReason.ALLOCATION_MISMATCH, note, action=ACTION
    )


def plugin_allocations(inventory: "GPUNodeInventory | None") -> "list[ContainerDevices]":
    """Return what containers of a node have by NVIDIA's own device plugin."""
    entries = (inventory.status.allocations if inventory is not None else None) or ()
    return [entry for entry in entries if is_of_nvidias_plugin(entry.resource)]


@final
class InventorySink:
    """Keeps a store of GPUNodeInventories and the reported allocations equal to the API server's."""

    def __init__(
        self, allocation_state: "AllocationState", recorder: "EventRecorder | None" = None
    ) -> None:
        self.store: Store[GPUNodeInventory] = Store()
        """The whole objects; updated after the allocation state, and silent about reports alone."""
        self._allocation_state = allocation_state
        self._recorder = recorder

    def replace_all(self, items: "Sequence[GPUNodeInventory]") -> None:
        """Take over a full list; inventories that are not in it are removed with their reports."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[GPUNodeInventory]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        names = {item.metadata.name for item in items}
        for gone in steps(sorted(self.store.by_name.keys() - names)):
            for name in gone:
                self.discard(self.store.by_name[name])
            yield
        for entry in steps(items):
            for item in entry:
                self.upsert(item)
            yield

    def last_read(self, unread: "UnreadObject") -> "GPUNodeInventory | None":
        return self.store.last_read(unread)

    def upsert(self, item: "GPUNodeInventory") -> None:
        name = item.metadata.name
        self._allocation_state.index.replace_kubelet(NodeName(name), kubelet_of(item))
        before = self.store.by_name.get(name)
        current = before.status if before is not None else GPUNodeInventoryStatus()
        has_allocated = (current.allocations or []) != (item.status.allocations or [])
        if has_allocated:
            self._observe(NodeName(name), item)
        is_report = has_allocated or current.driver_processes != item.status.driver_processes
        if (
            before is not None
            and is_report
            and _differ_in_reports_alone(before, item)
            and (not has_allocated or plugin_allocations(before) == plugin_allocations(item))
        ):
            self.store.by_name[name] = item
        else:
            self.store.upsert(item)

    def discard(self, item: "GPUNodeInventory") -> None:
        """Remove an inventory and its reports."""
        self._allocation_state.index.replace_kubelet(NodeName(item.metadata.name), None)
        self._allocation_state.observe_reports(NodeName(item.metadata.name), {})
        self.store.discard(item)

    def _observe(self, node: NodeName, item: "GPUNodeInventory") -> None:
        reports = reports_of(item)
        for pod in self._allocation_state.observe_reports(node, reports):
            if pod.node == node:
                report_shared_units(self._allocation_state.reader, pod, self._recorder)
            elif pod.uid in reports:
                _log.warning(
                    "report ignored: the pod runs on another node",
                    pod=pod.ref,
                    uid=pod.uid,
                    node=pod.node,
                    reported_by=node,
                )


def _differ_in_reports_alone(before: "GPUNodeInventory", item: "GPUNodeInventory") -> bool:
    """Say whether only the reports and the version differ."""
    status, replace = before.status, msgspec.structs.replace
    return before == replace(
        item,
        metadata=replace(item.metadata, resource_version=before.metadata.resource_version),
        status=replace(
            item.status,
            allocations=status.allocations,
            driver_processes=status.driver_processes,
            driver_processes_omitted=status.driver_processes_omitted,
        ),
    )

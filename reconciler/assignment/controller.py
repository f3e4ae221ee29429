"""`device.assignment`: every device of a node into the pool that it is for, and out of one that it is not for.

`inventory.assignment.decide` decides; this module compares, writes and records. Each write carries the
resourceVersion that was decided on, so that one of two writers gets a Conflict and decides again. Every write
contains poolRef: an apply removes the fields that it leaves out.

    free ──claim──> Assigned ──not desired─> Draining=True (index first) ──no longer used──> poolRef off ──> free
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpunodeinventory import PoolMembership
from api.names import GROUP, NodeName
from inventory.assignment.candidates import PoolCandidates
from inventory.assignment.decide import Action, decide
from kube.errors import Conflict, NotFound
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from manifests.install.rbac import PolicyRule
from reconciler.assignment.events import AssignmentEvents
from reconciler.assignment.other_plugin import plugin_on
from reconciler.assignment.pool_conflicts import pool_conflicts
from reconciler.assignment.status import carried_out, current_condition, membership_of, our_part
from reconciler.assignment.triggers import assignment_router
from reconciler.assignment.view import assignment_sources
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from reconciler.runtime.concurrent_writes import DEVICES_AT_A_TIME, write_in_order
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from telemetry.conditions import DeviceCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from api.clock import Instant
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import DeviceName, PoolName
    from inventory.assignment.decide import Decision
    from kube.client import KubeClient
    from reconciler.assignment.pool_conflicts import Candidate, Conflicts
    from reconciler.assignment.view import AssignmentSources

RBAC: Final = (
    PolicyRule(
        group=GROUP,
        resources=("gpudevices/status", "gpunodeinventories/status"),
        verbs=("patch",),
    ),
)

FIELD_MANAGER: Final = "gpu-control-plane/device-assignment"
RETRY_S: Final = 1.0
"""Seconds after a Conflict, should the watch not bring the node here sooner."""
AGAIN_S: Final = 0.05
"""Seconds after a Conflict whose newer object the watch has delivered meanwhile."""
JUDGED_WITHIN_S: Final = 5.0
"""How long devices that have just been found wait for their health and their node's readiness."""
CHECK_S: Final = 30.0
"""Seconds between two reconciles while a device drains: pods with unknown devices, and pods on a device of a
deleted pool, end without a change
of a device in the index."""


@final
class DeviceAssignment:
    """Assigns the devices of one node."""

    def __init__(
        self,
        client: "KubeClient",
        sources: "AssignmentSources",
        conflicts: "Conflicts",
        *,
        events: "AssignmentEvents",
        now: "Callable[[], Instant]",
        await_devices: "Callable[[NodeName], None]" = lambda _node: None,
    ) -> None:
        """Take the dependencies.

        Args:
            client: for writes.
            sources: stores to read.
            conflicts: receives the devices that each pool wants and does not have.
            events: records what was done.
            now: reads the clock.
            await_devices: has the node reconciled again when the watch shows a newer device of it.
        """
        self._client = client
        self._device_writer = StatusWriter(client, GPU_DEVICES, FIELD_MANAGER)
        self._inventory_writer = StatusWriter(client, GPU_NODE_INVENTORIES, FIELD_MANAGER)
        self._sources = sources
        self._conflicts = conflicts
        self._events = events
        self._now = now
        self._await_devices = await_devices
        self._candidates_of: tuple[tuple[GPUPool, ...], frozenset[PoolName]] = ((), frozenset())
        self._candidates = PoolCandidates((), sources.validity_of)
        self._expected_devices: Expectations[DeviceName, GPUDevice] = Expectations(now)
        self._expected_members: Expectations[NodeName, PoolMembership] = Expectations(now)
        self._new_since: dict[NodeName, float] = {}
        # node whose devices have no condition of ours, and that is not judged yet -> since when

    async def reconcile(self, node: "NodeName") -> float | None:
        """Take every device of the node one step towards its decision."""
        devices, decisions = self._decided(node)
        self._withhold(decisions)
        plugin, plugin_s = "", 0.0
        if any(item.action is Action.CLAIM for item in decisions):
            plugin, plugin_s = await plugin_on(
                self._client,
                node,
                self._sources.inventories.by_name.get(node),
                has_operands=self._sources.has_operands(node),
            )
            devices, decisions = self._decided(node, plugin)
            self._withhold(decisions)
        self._record_conflicts(node, decisions)
        wait_s = self._wait_for_validation(node, devices)
        if wait_s > 0:
            return wait_s
        if not await self._carry_out_all(node, zip(devices, decisions, strict=True)):
            self._await_devices(node)
            return AGAIN_S if self._are_newer(devices) else RETRY_S
        await self._write_membership(node, decisions)
        again_s = self._events.check_idle(
            node, self._sources.inventories.by_name.get(node), self._devices_of(node)
        )
        if plugin:
            return plugin_s
        if any(decision.action is Action.DRAIN for decision in decisions):
            return min(CHECK_S, again_s or CHECK_S)
        return again_s

    def _decided(
        self, node: "NodeName", plugin: str = ""
    ) -> "tuple[list[GPUDevice], tuple[Decision, ...]]":
        """Return the node's devices, and the decision on each.

        Args:
            node: the node.
            plugin: why NVIDIA's device plugin may give a device of it, where no label says so.
        """
        devices = self._devices_of(node)
        view = self._sources.view(node, devices)
        if plugin:
            view = replace(view, plugin=view.plugin or plugin)
        return devices, decide(view, self._current_candidates())

    def _wait_for_validation(self, node: "NodeName", devices: "Sequence[GPUDevice]") -> float:
        """Return the seconds for which nothing is written of devices that have just been found.

        Their node's readiness and their health follow, and bring the node here. Conditions written before would be
        written again, and a claim beside the write of a device's health has a Conflict.
        """
        is_new = not any(current_condition(device, DeviceCondition.ASSIGNED) for device in devices)
        if not is_new or not self._sources.awaits_validation(node, devices):
            self._new_since.pop(node, None)
            return 0.0
        now = self._now().monotonic
        return self._new_since.setdefault(node, now) + JUDGED_WITHIN_S - now

    def _are_newer(self, devices: "Iterable[GPUDevice]") -> bool:
        """Say whether the watch has delivered a newer device while these were written."""
        stored = ((device, self._sources.devices.get(device.name)) for device in devices)
        return any(
            now is not None and now.metadata.resource_version != item.metadata.resource_version
            for item, now in stored
        )

    def _devices_of(self, node: "NodeName") -> "list[GPUDevice]":
        """Return the node's devices by name, with writes that the watch has not delivered yet."""
        devices = self._sources.devices.on_node(node)
        return [
            self._expected_devices.unseen(device.name, device.metadata) or device
            for device in devices
        ]

    def _current_candidates(self) -> PoolCandidates:
        pools = tuple(self._sources.pools.values())
        unread = frozenset(self._sources.index.unread_pools)
        if (pools, unread) != self._candidates_of:
            self._candidates_of = pools, unread
            self._candidates = PoolCandidates(pools, self._sources.validity_of, unread=unread)
        return self._candidates

    def _withhold(self, decisions: "Iterable[Decision]") -> None:
        """Withhold draining devices in the index before anything is written."""
        index = self._sources.index
        for decision in decisions:
            if decision.action in {Action.DRAIN, Action.RELEASE}:
                index.withhold(decision.device)
            elif decision.action is not Action.HOLD:
                index.readmit(decision.device)

    def _record_conflicts(self, node: "NodeName", decisions: "Iterable[Decision]") -> None:
        found: dict[PoolName, tuple[Candidate, ...]] = {}
        for decision in decisions:
            for pool in (*decision.contenders, *decision.candidates):
                found[pool] = (*found.get(pool, ()), (decision.device, decision.owner))
        conflicts = self._conflicts
        has_devices = bool(self._sources.devices.on_node(node))
        for pool in conflicts.replace(node, found) if has_devices else conflicts.discard(node):
            conflicts.changes.publish(pool)

    async def _carry_out_all(
        self, node: "NodeName", decided: "Iterable[tuple[GPUDevice, Decision]]"
    ) -> bool:
        """Write the differences, those of several devices at a time; say whether all devices are now as decided."""
        releases: list[tuple[GPUDevice, Decision]] = []
        others: list[tuple[GPUDevice, Decision]] = []
        for item in decided:
            (releases if item[1].action is Action.RELEASE else others).append(item)
        undone: list[DeviceName] = []

        async def carry_out(item: "tuple[GPUDevice, Decision]") -> None:
            device, decision = item
            if not await self._carry_out(node, device, decision):
                undone.append(device.name)

        await write_in_order(others, carry_out, at_a_time=DEVICES_AT_A_TIME)
        # One after the other: what is in use is read right before the write.
        await write_in_order(releases, carry_out, at_a_time=1)
        return not undone

    async def _carry_out(self, node: "NodeName", device: "GPUDevice", decision: "Decision") -> bool:
        """Write a difference; say whether the device is now as decided."""
        after = carried_out(device, decision, self._now().utc)
        if decision.action is not Action.RELEASE and our_part(after) == our_part(device):
            return True
        if self._expected_devices.unseen(device.name, device.metadata) is not None:
            # Its resourceVersion is known only when the watch has delivered our last write.
            return False
        if decision.action is Action.RELEASE and self._sources.is_used(node, device):
            return False
        try:
            if decision.action is Action.RELEASE:
                await self._release(device, after)
            elif not await self._apply(device, after):
                return True
        except NotFound:
            return True
        except Conflict:
            return False
        self._events.record(device, decision)
        return True

    async def _apply(self, device: "GPUDevice", after: "GPUDevice") -> bool:
        """Write poolRef and conditions; say whether the device is still there."""
        ref, conditions = our_part(after)
        status: dict[str, object] = {"conditions": conditions}
        if ref is not None:
            status["poolRef"] = ref
        version = device.metadata.resource_version
        written = await self._device_writer.apply(device.name, status, version=version)
        if written is None:
            return False
        self._expected_devices.expect(device.name, after, written)
        return True

    async def _release(self, device: "GPUDevice", after: "GPUDevice") -> None:
        """Remove poolRef, by whichever manager it was written; the conditions follow once the watch shows that."""
        version = device.metadata.resource_version
        body = {"metadata": {"resourceVersion": version}, "status": {"poolRef": None}}
        await self._client.merge_patch(GPU_DEVICES, body, name=device.name, subresource="status")
        self._expected_devices.expect_newer(device.name, after, device.metadata)

    async def _write_membership(self, node: "NodeName", decisions: "Iterable[Decision]") -> None:
        inventory = self._sources.inventories.by_name.get(node)
        if inventory is None:
            return
        unseen = self._expected_members.unseen(node, inventory.metadata)
        current = unseen or inventory.status.pools
        desired = membership_of(decisions)
        pooled = sum(len(item.devices) for item in desired.assigned or ())
        is_counted = unseen is not None or inventory.status.device_counts.pooled == pooled
        if is_counted and desired == PoolMembership(
            candidates=current.candidates or [],
            pending=current.pending or [],
            assigned=current.assigned or [],
        ):
            return
        status = {"pools": desired, "deviceCounts": {"pooled": pooled}}
        written = await self._inventory_writer.apply(node, status)
        if written is not None:
            self._expected_members.expect(node, desired, written)


WORKERS: Final = 8


def _initial(context: ControllerContext) -> "list[NodeName]":
    stores = context.stores
    return [*stores.devices.nodes(), *map(NodeName, stores.inventories.by_name)]


SPEC: Final = ControllerSpec(
    name="device.assignment",
    rbac=RBAC,
    triggers=(Trigger(source=lambda context: context.shared(assignment_router).nodes),),
    initial=_initial,
    workers=WORKERS,
    build=lambda context: (
        DeviceAssignment(
            context.client,
            context.shared(assignment_sources),
            context.shared(pool_conflicts),
            events=AssignmentEvents(context.recorder, context.now),
            now=context.now,
            await_devices=context.shared(assignment_router).await_devices,
        ).reconcile
    ),
)

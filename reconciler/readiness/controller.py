"""`node.bootstrap`: readiness of a node's GPU software, and whether its devices may be assigned to pools.

Writes phase, operands, monitoring and the conditions of `reconciler.readiness.conditions` of a GPUNodeInventory, whose
other fields are `node.inventory`'s; judging is `inventory.readiness.phases`'s.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpunodeinventory import GPUNodeInventoryStatus, Monitoring
from api.names import GROUP, NodeName
from api.status_conditions import format_time, parse_time
from inventory.readiness.phases import assess_readiness
from inventory.readiness.software import NodeSoftwareFacts
from kube.event_recorder import ObjectReference
from kube.resources import GPU_NODE_INVENTORIES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import (
    INVENTORIES,
    OPERANDS,
    ControllerContext,
    ControllerSpec,
    Trigger,
    devices,
)
from reconciler.dcgm.scraper import dcgm_scraper
from reconciler.readiness.conditions import OURS, conditions_of, recalled
from reconciler.runtime.condition_events import ConditionEvents, record_changes
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from reconciler.sinks.agent_reports import AgentReports
from telemetry.conditions import InventoryCondition
from telemetry.metrics import BOOTSTRAP_CONDITION, BOOTSTRAP_PHASE, BOOTSTRAP_READY
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable

    from api.clock import Instant
    from api.kinds.gpunodeinventory import BootstrapPhase, GPUNodeInventory, OperandStatus
    from api.meta import Condition
    from api.names import DeviceName
    from api.status_conditions import ConditionStatus
    from inventory.readiness.phases import BootstrapState, NodeReadiness
    from inventory.readiness.software import BootstrapParameters
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from kube.store import Store
    from pool.index.figures import IndexFigures
    from reconciler.controller_spec import Reconcile
    from reconciler.runtime.device_store import DeviceStore
    from reconciler.sinks.operand_pod_sink import OperandPodSink


@final
class BootstrapGauges:
    """Sets the gauges of one node at a time; the leader is their only owner.

    Only the current phase and conditions that are True have a series: thousands of nodes times every phase and
    condition would be too many.
    """

    def __init__(self) -> None:
        self._phases: dict[NodeName, str] = {}
        self._true: dict[NodeName, frozenset[str]] = {}

    def show(
        self, node: "NodeName", readiness: "NodeReadiness", conditions: "Iterable[Condition]"
    ) -> None:
        """Set the node's gauges."""
        BOOTSTRAP_READY.labels(node).set(readiness.obstacle is None)
        phase = readiness.phase.value
        if self._phases.get(node) != phase:
            self._forget_phase(node)
            BOOTSTRAP_PHASE.labels(node, phase).set(1)
            self._phases[node] = phase
        true = frozenset(condition.type for condition in conditions if condition.status == "True")
        before = self._true.get(node, frozenset())
        for type_ in before - true:
            BOOTSTRAP_CONDITION.remove(node, type_)
        for type_ in true - before:
            BOOTSTRAP_CONDITION.labels(node, type_).set(1)
        self._true[node] = true

    def forget(self, node: "NodeName") -> None:
        """Drop the gauges of a node that is gone."""
        if node not in self._phases:
            return
        self._forget_phase(node)
        BOOTSTRAP_READY.remove(node)
        for type_ in self._true.pop(node):
            BOOTSTRAP_CONDITION.remove(node, type_)

    def forget_all(self) -> None:
        """Drop the gauges of all nodes."""
        for gauge in (BOOTSTRAP_READY, BOOTSTRAP_PHASE, BOOTSTRAP_CONDITION):
            gauge.clear()
        self._phases.clear()
        self._true.clear()

    def _forget_phase(self, node: "NodeName") -> None:
        phase = self._phases.pop(node, None)
        if phase is not None:
            BOOTSTRAP_PHASE.remove(node, phase)


ACTION: Final = "Judge"


def _fault(
    type_: InventoryCondition, lost: EventReason, *, good: "ConditionStatus" = "False"
) -> ConditionEvents:
    return ConditionEvents(type=type_, good=good, lost=lost, regained=EventReason.NODE_RECOVERED)


_EVENTS: Final = (
    ConditionEvents(
        type=InventoryCondition.READY_FOR_POOLING,
        good="True",
        lost=EventReason.NODE_NOT_READY_FOR_POOLING,
        regained=EventReason.NODE_READY_FOR_POOLING,
        announces_good=True,
    ),
    _fault(InventoryCondition.DEGRADED_WORKLOADS, EventReason.DEGRADED_WORKLOADS),
    _fault(InventoryCondition.INFRA_DEGRADED, EventReason.INFRA_DEGRADED),
    _fault(InventoryCondition.DRIVER_MISSING, EventReason.DRIVER_MISSING),
    _fault(InventoryCondition.TOOLKIT_MISSING, EventReason.TOOLKIT_MISSING),
    _fault(InventoryCondition.GFD_READY, EventReason.FEATURE_DISCOVERY_MISSING, good="True"),
    _fault(InventoryCondition.MONITORING_MISSING, EventReason.MONITORING_MISSING),
)


def is_heartbeat_due(
    current: str | None, heard_at: "dt.datetime", *, now: "dt.datetime", freshness_s: float
) -> bool:
    """Say whether the time is worth a write of its own.

    An exporter is read every few seconds, and a quiet node must not cost a write. The time goes with another change of
    the node's software, and alone when the exporter fell silent, or a wrong clock wrote a time in the future.

    Args:
        current: the time that the inventory shows.
        heard_at: when the exporter was last heard, as this process knows it.
        now: for its age.
        freshness_s: the exporter is silent after that long.
    """
    reported_at = parse_time(current or "")
    if reported_at is None:
        return True
    is_silent = (now - heard_at).total_seconds() > freshness_s
    return (is_silent or reported_at > now) and reported_at != heard_at.replace(microsecond=0)


RBAC: Final = (PolicyRule(group=GROUP, resources=("gpunodeinventories/status",), verbs=("patch",)),)

FIELD_MANAGER: Final = "gpu-control-plane/node-bootstrap"
DEVICES_DELAY_S: Final = 0.1
"""A node's devices change in bursts (found, assigned, reserved), and a pass costs 0.1 ms: 1 % of a core for ten nodes
whose devices change all the time."""
_UNTOLD: Final = GPUNodeInventoryStatus()
"""Facts of an inventory that `node.inventory` has just created: its first status follows, and brings the node here."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSources:
    """Stores and heartbeats that readiness depends on."""

    inventories: "Store[GPUNodeInventory]"
    devices: "DeviceStore"
    operands: "OperandPodSink"
    index: "IndexFigures"
    heartbeats: "tuple[Callable[[NodeName], float | None], ...]"
    """Ages of the node's heartbeats, None without a source; the first known one counts."""
    dcgm_heard_at: "Callable[[NodeName], dt.datetime | None]"
    """When the node's DCGM exporter was last heard, None before its first page."""

    def facts(self, node: NodeName, inventory: "GPUNodeInventory") -> NodeSoftwareFacts:
        devices = self.devices.on_node(node)
        driver = inventory.status.driver
        return NodeSoftwareFacts(
            is_managed=inventory.status.managed,
            devices=len(devices),
            complete=sum(1 for device in devices if device.status.uuid),
            faulted=sum(1 for device in devices if device.is_faulted),
            has_driver=bool(driver.version) or any(device.status.uuid for device in devices),
            has_toolkit=bool(driver.toolkit_version),
            operands=self.operands.facts(node),
            heartbeat_age_s=self._heartbeat_age_s(node),
            has_workloads=any(self._is_in_use(device.name) for device in devices),
        )

    def _heartbeat_age_s(self, node: NodeName) -> float | None:
        ages = (age_s(node) for age_s in self.heartbeats)
        return next((age for age in ages if age is not None), None)

    def _is_in_use(self, name: "DeviceName") -> bool:
        entry = self.index.devices.get(name)
        return entry is not None and bool(entry.observed)


@final
class NodeBootstrap:
    """Evaluates one node, writes changed fields, records what is missing, and sets its gauges."""

    def __init__(
        self,
        client: "KubeClient",
        sources: NodeSources,
        *,
        parameters: "BootstrapParameters",
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
    ) -> None:
        self._writer = StatusWriter(client, GPU_NODE_INVENTORIES, FIELD_MANAGER)
        self._sources = sources
        self._parameters = parameters
        self._recorder = recorder
        self._now = now
        self._last_bootstrap: dict[NodeName, BootstrapState] = {}
        self._expected: Expectations[NodeName, _Part] = Expectations(now)
        self._gauges = BootstrapGauges()

    def forget_gauges(self) -> None:
        self._gauges.forget_all()

    async def reconcile(self, node: NodeName) -> float | None:
        """Read the node once more; a node without inventory is none of ours."""
        inventory = self._sources.inventories.by_name.get(node)
        if inventory is None:
            self._forget(node)
            return None
        if inventory.status == _UNTOLD:
            return None
        now = self._now()
        before = self._last_bootstrap.get(node)
        readiness = assess_readiness(
            recalled(inventory.status) if before is None else before,
            self._sources.facts(node, inventory),
            self._parameters,
            now=now.monotonic,
        )
        self._last_bootstrap[node] = readiness.bootstrap
        current = self._current(node, inventory)
        conditions = conditions_of(
            readiness, current.conditions, generation=inventory.metadata.generation, now=now.utc
        )
        operands = (
            _dated(operand, current.operands, now=now.utc) for operand in readiness.operands
        )
        desired = _Part(
            phase=readiness.phase,
            operands=_by_name(operands),
            monitoring=current.monitoring,
            conditions=_in_order(conditions),
        )
        heard_at = self._sources.dcgm_heard_at(node)
        if heard_at is not None and (
            desired != current or self._is_due(current.monitoring, heard_at, now.utc)
        ):
            monitoring = Monitoring(last_heartbeat=format_time(heard_at))
            desired = replace(desired, monitoring=monitoring)
        self._gauges.show(node, readiness, conditions)
        if desired != current and await self._write(node, desired):
            record_changes(
                self._recorder,
                ObjectReference.to(GPU_NODE_INVENTORIES, inventory.metadata),
                _EVENTS,
                current=current.conditions,
                written=desired.conditions,
                action=ACTION,
            )
        return readiness.recheck_after_s

    def _is_due(self, current: Monitoring, heard_at: "dt.datetime", now: "dt.datetime") -> bool:
        freshness_s = self._parameters.heartbeat_freshness_s
        return is_heartbeat_due(current.last_heartbeat, heard_at, now=now, freshness_s=freshness_s)

    async def _write(self, node: NodeName, desired: "_Part") -> bool:
        """Write our part; return False where the inventory is gone."""
        status: dict[str, object] = {
            "phase": desired.phase,
            "operands": [_operand_body(operand) for operand in desired.operands],
            "conditions": desired.conditions,
        }
        if desired.monitoring != Monitoring():
            status["monitoring"] = desired.monitoring
        written = await self._writer.apply(node, status)
        if written is not None:
            self._expected.expect(node, desired, written)
        return written is not None

    def _current(self, node: NodeName, inventory: "GPUNodeInventory") -> "_Part":
        """Return our part of the status, with a write that the watch has not delivered yet."""
        unseen = self._expected.unseen(node, inventory.metadata)
        if unseen is not None:
            return unseen
        status = inventory.status
        ours = (condition for condition in status.conditions or () if condition.type in OURS)
        return _Part(
            phase=status.phase,
            operands=_by_name(status.operands or ()),
            monitoring=status.monitoring,
            conditions=_in_order(ours),
        )

    def _forget(self, node: NodeName) -> None:
        self._last_bootstrap.pop(node, None)
        self._gauges.forget(node)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The part of an inventory's status that is ours, in one order."""

    phase: "BootstrapPhase | None"
    operands: "tuple[OperandStatus, ...]"
    monitoring: Monitoring
    conditions: "tuple[Condition, ...]"


def _dated(
    operand: "OperandStatus", current: "Iterable[OperandStatus]", *, now: "dt.datetime"
) -> "OperandStatus":
    """Return a component with the time from which on it is ready, or is not."""
    as_before = (
        item.since for item in current if (item.name, item.ready) == (operand.name, operand.ready)
    )
    since = next(as_before, "") or format_time(now)
    return msgspec.structs.replace(operand, since=since)


def _by_name(operands: "Iterable[OperandStatus]") -> "tuple[OperandStatus, ...]":
    return tuple(sorted(operands, key=lambda operand: operand.name))


def _in_order(conditions: "Iterable[Condition]") -> "tuple[Condition, ...]":
    return tuple(sorted(conditions, key=lambda condition: OURS.index(condition.type)))


def _operand_body(operand: "OperandStatus") -> dict[str, object]:
    """Return a component as it is applied: without an empty message."""
    body: dict[str, object] = {
        "name": operand.name,
        "ready": operand.ready,
        "reason": operand.reason,
        "since": operand.since,
    }
    if operand.message:
        body["message"] = operand.message
    return body


WORKERS: Final = 8


def _nodes(context: ControllerContext, _operand: object = None) -> "list[NodeName]":
    return list(map(NodeName, context.stores.inventories.by_name))


def _build(context: ControllerContext) -> "Reconcile":
    stores, settings = context.stores, context.settings
    agents = AgentReports(stores.features, now=context.now)
    dcgm = context.shared(dcgm_scraper)
    bootstrap = NodeBootstrap(
        context.client,
        NodeSources(
            inventories=stores.inventories,
            devices=stores.devices,
            operands=stores.operands,
            index=context.index,
            heartbeats=(dcgm.heartbeat_age_s, agents.heartbeat_age_s),
            dcgm_heard_at=dcgm.heard_at,
        ),
        parameters=settings.bootstrap,
        recorder=context.recorder,
        now=context.now,
    )
    context.ending.callback(bootstrap.forget_gauges)
    return bootstrap.reconcile


SPEC: Final = ControllerSpec(
    name="node.bootstrap",
    rbac=RBAC,
    triggers=(
        INVENTORIES,
        Trigger(source=devices, delay_s=DEVICES_DELAY_S),
        OPERANDS,
        # An operand that comes to any node may be needed on all of them.
        Trigger(source=lambda context: context.stores.operands.presence, keys=_nodes),
        Trigger(source=lambda context: context.shared(dcgm_scraper).begun),
    ),
    initial=_nodes,
    workers=WORKERS,
    build=_build,
)

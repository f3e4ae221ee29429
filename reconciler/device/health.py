"""`device.health`: the condition Healthy and the last Xid of the devices of a node.

Both are written once a source has reported the device, and then on a change only; without a report they
are left as they are. The index follows the condition: a faulty device takes no new pods as soon as the watch
shows it. `inventory.health.device` decides.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpudevice import LastXid, RepairStep
from api.meta import Condition, Model
from api.names import GROUP, NodeName
from api.status_conditions import find_condition, new_condition
from api.text import listed
from inventory.debounce import DebounceCounter, DebouncedState
from inventory.health.device import (
    UNKNOWN,
    DeviceHealth,
    Fault,
    assess_health,
    last_xid,
)
from inventory.health.recovery import RecoveryAction
from kube.event_recorder import ObjectReference
from kube.resources import GPU_DEVICES, PODS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import FEATURES, ControllerContext, ControllerSpec, Trigger, devices
from reconciler.dcgm.scraper import dcgm_scraper
from reconciler.runtime.concurrent_writes import DEVICES_AT_A_TIME, write_in_order
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from reconciler.sinks.agent_reports import AgentReports
from telemetry.conditions import DeviceCondition, DeviceHealthy
from telemetry.metrics import DEVICES_FAULTED
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Mapping

    from api.clock import Instant
    from api.kinds.gpudevice import GPUDevice
    from api.names import DeviceName
    from inventory.health.dcgm import DeviceReading
    from inventory.health.device import ExporterSample, HealthDebounceLimits, HealthReport
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from pool.allocation_reader import AllocationReader
    from pool.model import PodFacts
    from reconciler.controller_spec import Reconcile
    from reconciler.runtime.device_store import DeviceStore

ACTION: Final = "WatchHealth"


@final
class FaultEvents:
    """Records faults, with the pods that use the device."""

    def __init__(self, recorder: "EventRecorder", reader: "AllocationReader") -> None:
        self._recorder = recorder
        self._reader = reader

    def faulted(self, device: "GPUDevice", fault: "Fault") -> None:
        """Record that a device is faulty, or has another fault now."""
        pods = self._pods_on(device)
        used_by = f"; still used by {listed(pod.ref for pod in pods)}" if pods else ""
        self._recorder.warning(
            ObjectReference.to(GPU_DEVICES, device.metadata),
            EventReason.DEVICE_FAULTED,
            f"{fault.text}: no new pods are placed on the device{used_by}",
            action=ACTION,
        )
        for pod in pods:
            self._recorder.warning(
                ObjectReference.to(PODS, pod),
                EventReason.DEVICE_FAULTED,
                f"device {device.name} of this pod is faulty: {fault.text};"
                " delete it to have its replacement placed on another device",
                action=ACTION,
            )

    def recovered(self, device: "GPUDevice") -> None:
        self._recorder.normal(
            ObjectReference.to(GPU_DEVICES, device.metadata),
            EventReason.DEVICE_RECOVERED,
            "the device is healthy again and accepts new pods",
            action=ACTION,
        )

    def _pods_on(self, device: "GPUDevice") -> "list[PodFacts]":
        return sorted(self._reader.pods_on(device.name), key=lambda pod: pod.ref)


RBAC: Final = (PolicyRule(group=GROUP, resources=("gpudevices/status",), verbs=("patch",)),)

FIELD_MANAGER: Final = "gpu-control-plane/device-health"
DEVICES_DELAY_S: Final = 0.1
"""A node's devices change in bursts; a fault of a new device is to be known before pods get it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSources:
    """Sources of the health of devices."""

    page: "Callable[[NodeName], ExporterSample | None]"
    """The last page of the node's DCGM exporter (`reconciler.dcgm.scraper.DcgmScraper.seen`)."""
    reports: "Callable[[NodeName], Mapping[str, HealthReport]]"
    """Reports of the node agent by UUID; empty while it is silent."""


@dataclass(frozen=True, slots=True)
class _Device:
    """State of a device between two reconciles; a replaced device has another uid or UUID."""

    uid: str
    uuid: str
    health: DeviceHealth

    def is_of(self, device: "GPUDevice") -> bool:
        return (self.uid, self.uuid) == (device.metadata.uid, device.status.uuid)


class _OwnStatus(Model, frozen=True):
    """The controller's part of a status."""

    conditions: tuple[Condition, ...] = ()
    last_xid: LastXid | None = None


@final
class DeviceHealthController:
    """Evaluates the devices of one node, writes changed conditions and records Events."""

    def __init__(
        self,
        client: "KubeClient",
        devices: "DeviceStore",
        sources: HealthSources,
        *,
        events: "FaultEvents",
        limits: "HealthDebounceLimits",
        now: "Callable[[], Instant]",
    ) -> None:
        self._writer = StatusWriter(client, GPU_DEVICES, FIELD_MANAGER)
        self._devices = devices
        self._sources = sources
        self._events = events
        self._limits = limits
        self._now = now
        self._gpus: dict[NodeName, dict[DeviceName, _Device]] = {}
        self._expected: Expectations[DeviceName, _OwnStatus] = Expectations(now)
        self._faulted: dict[NodeName, Counter[RecoveryAction]] = {}
        # node -> reason -> devices
        self._export_faulted()

    def forget_gauges(self) -> None:
        DEVICES_FAULTED.clear()

    async def reconcile(self, node: NodeName) -> float | None:
        devices = self._devices.on_node(node)
        self._forget_missing(node, devices)
        if not devices:
            self._count(node)
            return None
        seen, reports = self._sources.page(node), self._sources.reports(node)
        gpus = self._gpus.setdefault(node, {})
        waits: list[float] = []

        async def examine(device: "GPUDevice") -> None:
            before = _previous_health(device, gpus.get(device.name))
            report = reports.get(device.status.uuid)
            now = self._now().monotonic
            after = assess_health(
                before,
                device.status.uuid,
                seen=seen,
                report=report,
                limits=self._limits,
                now=now,
            )
            after = _unrepaired(device, after)
            if after.is_known:
                is_new = seen is not None and after.read_at != before.read_at
                figures = seen.page.devices.get(device.status.uuid) if seen and is_new else None
                await self._write(device, after, report=report, figures=figures)
                self._record(device, before, after)
            gpus[device.name] = _Device(device.metadata.uid, device.status.uuid, after)
            wait_s = after.next_sample_in(now, self._limits)
            # A new page triggers a reconcile.
            if wait_s is not None and report is not None:
                waits.append(wait_s)

        try:
            await write_in_order(devices, examine, at_a_time=DEVICES_AT_A_TIME)
        finally:
            self._count(node)
        return min(waits, default=None)

    async def _write(
        self,
        device: "GPUDevice",
        health: DeviceHealth,
        *,
        report: "HealthReport | None",
        figures: "DeviceReading | None",
    ) -> None:
        current, now = self._current(device), self._now().utc
        desired = _OwnStatus(
            conditions=(_condition(device, health, current.conditions, now=now),),
            last_xid=last_xid(current.last_xid, report=report, figures=figures, now=now),
        )
        if desired == current:
            return
        written = await self._writer.apply(device.name, desired)
        if written is not None:
            self._expected.expect(device.name, desired, written)

    def _record(self, device: "GPUDevice", before: DeviceHealth, after: DeviceHealth) -> None:
        fault = after.present_fault
        if fault is not None and fault != before.present_fault:
            self._events.faulted(device, fault)
        elif fault is None and before.present_fault is not None:
            self._events.recovered(device)

    def _current(self, device: "GPUDevice") -> _OwnStatus:
        """Return what the API server has, with a write that the watch has not delivered yet."""
        condition = _condition_of(device)
        return self._expected.unseen(device.name, device.metadata) or _OwnStatus(
            conditions=() if condition is None else (condition,),
            last_xid=device.status.last_xid,
        )

    def _forget_missing(self, node: NodeName, devices: "list[GPUDevice]") -> None:
        names = {device.name for device in devices}
        gpus = self._gpus.get(node, {})
        for name in gpus.keys() - names:
            del gpus[name]
        if not names:
            self._gpus.pop(node, None)

    def _count(self, node: NodeName) -> None:
        gpus = self._gpus.get(node, {}).values()
        faults = [fault for gpu in gpus if (fault := gpu.health.present_fault) is not None]
        counted = Counter(fault.action for fault in faults)
        before = self._faulted.pop(node, Counter())
        if counted:
            self._faulted[node] = counted
        if counted != before:
            self._export_faulted()

    def _export_faulted(self) -> None:
        total: Counter[RecoveryAction] = Counter()
        for counted in self._faulted.values():
            total += counted
        for action in RecoveryAction:
            if action is not RecoveryAction.NONE:
                DEVICES_FAULTED.labels(action.value).set(total[action])


def _previous_health(device: "GPUDevice", gpu: _Device | None) -> DeviceHealth:
    """Return the known health of a device; before the first report that of its condition."""
    if gpu is not None and gpu.is_of(device) and gpu.health.is_known:
        return gpu.health
    return _health_of_condition(device)


def _unrepaired(device: "GPUDevice", health: DeviceHealth) -> DeviceHealth:
    """Return the health of a device for which its repair did not help: it is to be replaced."""
    repair, fault = device.status.repair, health.present_fault
    if fault is None or repair is None or repair.step is not RepairStep.FAILED:
        return health
    if fault.action is RecoveryAction.REPLACE:
        return health
    text = f"{fault.text}; its repair failed, {repair.message}"
    return replace(health, fault=Fault(RecoveryAction.REPLACE, text))


def _condition(
    device: "GPUDevice", health: DeviceHealth, current: "Iterable[Condition]", *, now: "dt.datetime"
) -> "Condition":
    fault = health.present_fault
    return new_condition(
        DeviceCondition.HEALTHY,
        DeviceHealthy.HEALTHY if fault is None else fault.action,
        "no fault is known" if fault is None else fault.text,
        status=fault is None,
        keeps_text=fault is None,
        current=current,
        generation=device.metadata.generation,
        now=now,
    )


def _condition_of(device: "GPUDevice") -> "Condition | None":
    return find_condition(device.status.conditions, DeviceCondition.HEALTHY)


def _health_of_condition(device: "GPUDevice") -> DeviceHealth:
    """Return the health by the condition, so that a restart neither forgets nor invents a fault."""
    condition = _condition_of(device)
    if condition is None:
        return UNKNOWN
    if condition.status != "False":
        return replace(UNKNOWN, was_listed=True)
    action = RecoveryAction.of(condition.reason)
    return replace(
        UNKNOWN,
        counter=DebounceCounter(DebouncedState.DOWN),
        fault=Fault(action, condition.message),
        was_listed=True,
    )


WORKERS: Final = 8


def _build(context: ControllerContext) -> "Reconcile":
    agents = AgentReports(context.stores.features, now=context.now)
    health = DeviceHealthController(
        context.client,
        context.stores.devices,
        HealthSources(page=context.shared(dcgm_scraper).seen, reports=agents.health),
        events=FaultEvents(context.recorder, context.reader),
        limits=context.settings.health,
        now=context.now,
    )
    context.ending.callback(health.forget_gauges)
    return health.reconcile


SPEC: Final = ControllerSpec(
    name="device.health",
    rbac=RBAC,
    triggers=(
        Trigger(source=devices, delay_s=DEVICES_DELAY_S),
        Trigger(source=lambda context: context.shared(dcgm_scraper).changes),
        FEATURES,
    ),
    initial=lambda context: list(context.stores.devices.nodes()),
    workers=WORKERS,
    build=_build,
)

"""`device.repair`: the repair of the faulted devices of a node, and the request for its reboot.

`inventory.health.repair` decides; the state is `status.repair` of the GPUDevice. Pods are evicted through the Eviction
API, and the node agent resets the device. A node with a device that needs a reboot is cordoned and labelled as long as
that lasts; nobody is rebooted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpudevice import RepairStep
from api.kinds.gpupool import RepairPolicy
from api.meta import ObjectMeta, PartialObjectMetadata
from api.names import GROUP, REBOOT_LABEL, REPAIR_MANAGER, NodeName, PodUid, PoolName
from inventory.health.recovery import RecoveryAction
from inventory.health.repair import RepairCase, begun_within_the_hour, plan_repair
from inventory.pools.maintenance import PodUsage
from kube.errors import NotFound
from kube.event_recorder import ObjectReference
from kube.resources import GPU_DEVICES, NODES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import FEATURES, ControllerContext, ControllerSpec, Trigger, devices
from reconciler.runtime import eviction
from reconciler.runtime.eviction import EvictionQueue
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from reconciler.sinks.agent_reports import AgentReports
from telemetry.metrics import DEVICE_REPAIRS
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.clock import Instant
    from api.kinds.gpudevice import DeviceRepair, GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import DeviceName
    from inventory.health.device import HealthReport
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from pool.allocation_reader import AllocationReader
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts
    from reconciler.controller_spec import Reconcile
    from reconciler.runtime.device_store import DeviceStore

RBAC: Final = (
    PolicyRule(group=GROUP, resources=("gpudevices/status",), verbs=("patch",)),
    PolicyRule(resources=("nodes",), verbs=("patch",)),
    *eviction.RBAC,
)
ACTION: Final = "RepairDevice"
CHECK_S: Final = 2.0
"""Seconds between two reconciles of a node with a repair that goes on."""
WAIT_S: Final = 30.0
"""Seconds between two reconciles of a node with a faulted device: its pool may allow a repair meanwhile."""
EVICT_S: Final = 10.0
"""Seconds between two attempts to evict pods that budgets protect."""
_WAITING: Final = frozenset({RepairStep.WAITING, RepairStep.REBOOT_ASKED})


@dataclass(frozen=True, slots=True)
class _Evicting:
    """The evictions for a device so far."""

    again_at: float = 0.0
    evicted: frozenset[PodUid] = frozenset()
    obstacle: str = ""


@final
class DeviceRepairs:
    """Repairs the devices of one node after another."""

    def __init__(  # noqa: PLR0913  # stores and services
        self,
        client: "KubeClient",
        store: "DeviceStore",
        *,
        index: "IndexFigures",
        reader: "AllocationReader",
        pools: "Mapping[PoolName, GPUPool]",
        reports: "Callable[[NodeName], Mapping[str, HealthReport]]",
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._writer = StatusWriter(client, GPU_DEVICES, REPAIR_MANAGER)
        self._evictions = EvictionQueue(client)
        self._store = store
        self._index = index
        self._reader = reader
        self._pools = pools
        self._reports = reports
        self._recorder = recorder
        self._now = now
        self._expected: Expectations[DeviceName, tuple[DeviceRepair | None]] = Expectations(now)
        self._asked: Expectations[NodeName, bool] = Expectations(now)
        self._evicting: dict[DeviceName, _Evicting] = {}
        for step in RepairStep:
            DEVICE_REPAIRS.labels(step.value)

    async def reconcile(self, node: NodeName) -> float | None:
        """Take each device one step further; return the seconds until the next look."""
        reports = self._reports(node)
        states: list[DeviceRepair] = []
        is_any_faulted = False
        for device in self._store.on_node(node):
            repair = await self._repair(device, reports)
            states += [repair] if repair is not None and not repair.is_over else []
            is_any_faulted = is_any_faulted or device.is_faulted
        await self._ask_for_reboot(node, states)
        if any(state.step not in _WAITING for state in states):
            return CHECK_S
        return WAIT_S if is_any_faulted else None

    async def _repair(
        self, device: "GPUDevice", reports: "Mapping[str, HealthReport]"
    ) -> "DeviceRepair | None":
        before = self._latest(device)
        if before is None and not device.is_faulted:
            return None
        report = reports.get(device.status.uuid)
        plan = plan_repair(self._case(device, before, report.reset if report else None))
        if plan.repair != before:
            if _asks(before) and not _asks(plan.repair):
                await self._label_again(device.node)
            status = {} if plan.repair is None else {"repair": plan.repair}
            written = await self._writer.apply(device.name, status)
            if written is not None:
                self._expected.expect(device.name, (plan.repair,), written)
            if plan.repair is not None and (before is None or plan.repair.step != before.step):
                self._record(device, plan.repair)
        if plan.evict:
            await self._evict(device.name, plan.evict)
        else:
            self._evicting.pop(device.name, None)
        return plan.repair

    async def _evict(self, device: "DeviceName", pods: "tuple[PodUsage, ...]") -> None:
        """Evict each pod once, and those that could not be evicted again after some seconds."""
        before, now = self._evicting.get(device, _Evicting()), self._now().monotonic
        due = [pod for pod in pods if pod.uid not in before.evicted]
        if not due or now < before.again_at:
            return
        ended = await self._evictions.evict(due)
        evicted = before.evicted | {pod.uid for pod in ended.done}
        self._evicting[device] = _Evicting(now + EVICT_S, evicted, ended.obstacle)

    def _case(
        self, device: "GPUDevice", before: "DeviceRepair | None", reported: str | None
    ) -> RepairCase:
        ref, now = device.status.pool_ref, self._now().utc
        pool = self._pools.get(PoolName(ref.name)) if ref is not None else None
        entry = self._index.devices.get(device.name)
        pods = self._reader.pods_on(device.name)
        may_begin = (
            pool is not None
            and pool.spec.repair is not RepairPolicy.OFF
            and device.is_faulted
            and self._begun(pool.name) < pool.spec.max_repairs_per_hour
        )
        return RepairCase(
            action=RecoveryAction.of(device.needed_action)
            if device.is_faulted
            else RecoveryAction.NONE,
            policy=pool.spec.repair if pool is not None else RepairPolicy.OFF,
            repair=before,
            reported=reported,
            pods=tuple(
                sorted(
                    PodUsage(
                        namespace=pod.namespace,
                        name=pod.name,
                        uid=pod.uid,
                        units=pod.demand.units,
                    )
                    for pod in pods
                )
            ),
            obstacle=self._evicting.get(device.name, _Evicting()).obstacle,
            reserved=0 if entry is None else (entry.taken & ~entry.observed).bit_count(),
            is_in_budget=may_begin,
            now=now,
        )

    def _begun(self, pool: "PoolName") -> int:
        """Count the repairs that the pool has begun within an hour; one worker, so that two devices are not one."""
        now = self._now().utc
        names = [
            name for names in self._index.state(pool).devices_by_node.values() for name in names
        ]
        found = (self._store.get(name) for name in names)
        return sum(
            begun_within_the_hour(self._latest(device), now)
            for device in found
            if device is not None
        )

    def _latest(self, device: "GPUDevice") -> "DeviceRepair | None":
        unseen = self._expected.unseen(device.name, device.metadata)
        return device.status.repair if unseen is None else unseen[0]

    def _record(self, device: "GPUDevice", repair: "DeviceRepair") -> None:
        DEVICE_REPAIRS.labels(repair.step.value).inc()
        regarding = ObjectReference.to(GPU_DEVICES, device.metadata)
        text = f"{repair.step.value}: {repair.message}" if repair.message else repair.step.value
        if repair.step is RepairStep.FAILED:
            reason = EventReason.DEVICE_REPAIR_FAILED
            self._recorder.warning(regarding, reason, text, action=ACTION)
        else:
            self._recorder.normal(regarding, EventReason.DEVICE_REPAIR, text, action=ACTION)

    async def _ask_for_reboot(self, node: NodeName, states: "list[DeviceRepair]") -> None:
        """Cordon and label a node that has to be rebooted; give both up once no device needs it."""
        facts = self._index.nodes.get(node)
        texts = [state.message for state in states if _asks(state)]
        if facts is None or self._is_asked(facts) is bool(texts):
            return
        if await self._apply(facts, is_asked=bool(texts)) and texts:
            self._record_reboot(_metadata(facts), texts[0])

    async def _label_again(self, node: NodeName) -> None:
        """Label a cordoned node whose label a user removed: by the label the cordon is found, and given up."""
        facts = self._index.nodes.get(node)
        if facts is not None and facts.is_cordoned and not self._is_asked(facts):
            await self._apply(facts, is_asked=True)

    def _is_asked(self, node: "NodeFacts") -> bool:
        asked = self._asked.unseen(node.name, _metadata(node))
        return REBOOT_LABEL in node.labels if asked is None else asked

    async def _apply(self, node: "NodeFacts", *, is_asked: bool) -> bool:
        """Cordon and label a node, or give both up; return whether it exists."""
        metadata: dict[str, object] = {"name": node.name, "uid": node.uid}
        body: dict[str, object] = {
            "apiVersion": NODES.api_version,
            "kind": NODES.kind,
            "metadata": metadata,
        }
        if is_asked:
            metadata["labels"] = {REBOOT_LABEL: "true"}
            body["spec"] = {"unschedulable": True}
        try:
            written = await self._client.apply(NODES, body, field_manager=REPAIR_MANAGER)
        except NotFound:
            return False
        self._asked.expect(node.name, is_asked, written.decode(PartialObjectMetadata).metadata)
        return True

    def _record_reboot(self, node: ObjectMeta, text: str) -> None:
        note = f"cordoned, and labelled {REBOOT_LABEL}: a device {text}; the label goes once no device needs it"
        self._recorder.warning(
            ObjectReference.to(NODES, node), EventReason.NODE_REBOOT_NEEDED, note, action=ACTION
        )


def _asks(repair: "DeviceRepair | None") -> bool:
    return repair is not None and repair.step is RepairStep.REBOOT_ASKED


def _metadata(node: "NodeFacts") -> ObjectMeta:
    return ObjectMeta(name=node.name, uid=node.uid, resource_version=node.resource_version)


def _build(context: ControllerContext) -> "Reconcile":
    return DeviceRepairs(
        context.client,
        context.stores.devices,
        index=context.index,
        reader=context.reader,
        pools=context.catalog.pools,
        reports=AgentReports(context.stores.features, now=context.now).health,
        recorder=context.recorder,
        now=context.now,
    ).reconcile


SPEC: Final = ControllerSpec(
    name="device.repair",
    rbac=RBAC,
    triggers=(Trigger(source=devices), FEATURES),
    initial=lambda context: {
        *context.stores.devices.nodes(),
        # A device whose reboot was asked for may be gone.
        *(name for name, node in context.index.nodes.items() if REBOOT_LABEL in node.labels),
    },
    build=_build,
)

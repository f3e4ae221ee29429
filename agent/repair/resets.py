"""Resets of devices: the node's part in `inventory.health.repair`.

A GPUDevice whose repair is at the step Resetting asks for a reset; each attempt of it is made once. A device with direct
NVLinks is reset together with the devices at their other ends. Once nothing uses any of them, no live pod and no process,
all of them are withheld, so that kubelet gives none of them out meanwhile, and it is checked again. The outcome is published with the
device's health, and reported in an Event with the driver's own words. A restart of the agent in the middle makes the attempt
again.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from agent.errors import DriverUnavailableError, ResetRefusedError
from api.kinds.gpudevice import RepairStep
from api.text import listed
from api.units import part_of
from inventory.health.repair import ResetOutcome, reset_text
from kube.errors import one_line
from kube.event_recorder import ObjectReference
from kube.resources import GPU_DEVICES
from telemetry.agent_metrics import RESETS
from telemetry.metrics import TASK_FAILURES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from agent.driver.port import DriverDevice, PartitionDriver
    from agent.health.watcher import HealthWatch
    from agent.mig.dependencies import ObjectCache
    from api.kinds.gpudevice import DeviceRepair, GPUDevice
    from kube.event_recorder import EventRecorder

TASK: Final = "device.resets"
ACTION: Final = "ResetDevice"
RETRY_S: Final = 10.0
"""Seconds until a device that a pod or a process used is tried again."""
OPEN_S: Final = 300.0
"""Seconds until the driver is asked again for a reset of a device that a program had open: neighbours are withheld for it."""
WITHHELD_S: Final = 2.0
"""Time for kubelet to see that the devices are withheld, and for a pod that it let in before to be known."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDependencies:
    """None of these may block or raise."""

    objects: "ObjectCache"
    health: "HealthWatch"
    in_use: "Callable[[], Collection[str] | None]"
    """As `agent.mig.dependencies.PartitionerDependencies.in_use`."""
    events: "EventRecorder"


@final
class DeviceResets:
    """Resets devices, one after the other; `run` is its only task."""

    def __init__(self, driver: "PartitionDriver", dependencies: ResetDependencies) -> None:
        self._driver = driver
        self._dependencies = dependencies
        self._ended: dict[str, str] = {}
        # UUID -> begin of the last attempt with an outcome that stays
        self._was_open_at: dict[str, float] = {}
        # UUID -> time of the last refusal because a program had it open
        self._notified: dict[str, str] = {}
        # UUID -> text of the last Event
        self._triggered = asyncio.Event()
        TASK_FAILURES.labels(TASK)
        for outcome in ResetOutcome:
            RESETS.labels(outcome.value)

    def trigger(self) -> None:
        """Look again soon: a GPUDevice changed."""
        self._triggered.set()

    async def run(self) -> NoReturn:
        """Reset devices until cancelled."""
        await self._dependencies.objects.synced()
        while True:
            self._triggered.clear()
            await self.work()
            within_s = RETRY_S if any(self._pending_repairs()) else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._triggered.wait()

    async def work(self) -> None:
        """Make each reset that is asked for, where nothing uses the device."""
        now = asyncio.get_running_loop().time()
        for device, repair in list(self._pending_repairs()):
            if now < self._was_open_at.get(device.status.uuid, -OPEN_S) + OPEN_S:
                continue
            outcome, text = await self._attempt(device.status.uuid)
            RESETS.labels(outcome.value).inc()
            self._dependencies.health.withhold(())
            if outcome is not ResetOutcome.IN_USE:
                self._ended[device.status.uuid] = repair.started
            self._notify(device, outcome, text)
            self._dependencies.health.note_reset(device.status.uuid, reset_text(repair, outcome))

    def _pending_repairs(self) -> "Iterator[tuple[GPUDevice, DeviceRepair]]":
        for device in self._dependencies.objects.devices():
            repair, uuid = device.status.repair, device.status.uuid
            is_pending = repair is not None and repair.step is RepairStep.RESETTING and uuid
            if is_pending and repair is not None and self._ended.get(uuid) != repair.started:
                yield device, repair

    async def _attempt(self, uuid: str) -> tuple[ResetOutcome, str]:
        try:
            group, users = await self._users_of_group(uuid)
        except DriverUnavailableError as error:
            return ResetOutcome.IN_USE, one_line(str(error))
        if users:
            return ResetOutcome.IN_USE, users
        try:
            await self._driver.reset(group)
        except ResetRefusedError as error:
            text = one_line(str(error))
            if not error.is_in_use:
                return ResetOutcome.REFUSED, text
            self._was_open_at[uuid] = asyncio.get_running_loop().time()
            return ResetOutcome.IN_USE, text
        except DriverUnavailableError as error:
            TASK_FAILURES.labels(TASK).inc()
            return ResetOutcome.HANGS, one_line(str(error))
        self._dependencies.health.were_reset(group)
        return ResetOutcome.DONE, f"{listed(group)} reset"

    async def _users_of_group(self, uuid: str) -> tuple[tuple[str, ...], str]:
        """Return the devices that are reset together, withheld, and what uses any of them: then they are not withheld."""
        devices = (await self._driver.read()).devices
        group = reset_group(devices, uuid)
        users = self._users(devices, group)
        if users:
            return group, users
        self._dependencies.health.withhold(group)
        await asyncio.sleep(WITHHELD_S)
        devices = (await self._driver.read()).devices
        return group, self._users(devices, group)

    def _users(self, devices: "Collection[DriverDevice]", group: "Collection[str]") -> str:
        """Return what uses the group; empty where nothing does. No await from here to the reset."""
        in_use = self._dependencies.in_use()
        if in_use is None:
            return "the users of the node's devices are not known yet"
        parts = {part_of(unit) for unit in in_use}
        # A sick device may not list its instances, which a reset destroys.
        unlisted = {part for part in parts if part.startswith("MIG-")}
        for device in devices:
            instances = {instance.uuid for instance in device.instances}
            unlisted -= instances
            if device.uuid not in group:
                continue
            if ({device.uuid, *instances} - {""}) & parts:
                return f"a pod of this node uses {device.uuid}"
            if device.processes:
                return f"processes run on {device.uuid} (nvidia-smi shows which)"
        return f"a pod uses {min(unlisted)}, which no device lists" if unlisted else ""

    def _notify(self, device: "GPUDevice", outcome: ResetOutcome, text: str) -> None:
        about = ObjectReference.to(GPU_DEVICES, device.metadata)
        note = f"reset {outcome.value}: {text}"
        if self._notified.get(device.status.uuid) == note:
            return
        self._notified[device.status.uuid] = note
        events, reason = self._dependencies.events, EventReason.DEVICE_REPAIR
        if outcome is ResetOutcome.DONE:
            events.normal(about, reason, note, action=ACTION)
        else:
            events.warning(about, reason, note, action=ACTION)
        _log.info("device reset", device=device.name, outcome=outcome.value, text=text)


def reset_group(devices: "Collection[DriverDevice]", uuid: str) -> tuple[str, ...]:
    """Return the UUIDs of a device, and of all that direct NVLinks connect it to, also by way of others.

    A link counts that either of its ends reports: a sick device may not.
    """
    uuids = {device.address: device.uuid for device in devices}
    ends = {
        (device.address, link.peer) for device in devices for link in device.links if link.is_direct
    }
    ends |= {(peer, address) for address, peer in ends}
    group = {device.address for device in devices if device.uuid == uuid}
    open_ = list(group)
    while open_:
        address = open_.pop()
        peers = {peer for end, peer in ends if end == address and peer in uuids}
        open_ += peers - group
        group |= peers
    return (uuid, *sorted({uuids[address] for address in group} - {uuid, ""}))

"""Partitioner: brings the node's devices to the layout of their pools, one step at a time.

For each device: read it, plan its next step (`agent.mig.partition_planner`), take the step, read it again, until it is
done or blocked. Its users are read between the driver's answer and the step, with no `await` after; the races
that remain, and their protection, are in `agent.mig.partition_planner`.

While a device is being partitioned its instances appear one by one: `partitioning` contains it, so that no
instance of an unfinished layout is published and allocated, and blocks the rest. `after_change` is called once
the device is finished or blocked.
"""

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Final, NoReturn, final, get_args

import structlog

from agent.errors import DriverUnavailableError, PartitioningError
from agent.mig.partition_planner import (
    Action,
    Blocked,
    BlockReason,
    Complete,
    Create,
    Destroy,
    DisableMode,
    Done,
    EnableMode,
    Unmanaged,
    desired_layout,
    mig_layout,
    next_step,
)
from agent.mig.progress import EVERY_S, PartitionTarget, Progress
from api.text import MAX_MESSAGE_LENGTH, truncate
from kube.backoff import Backoff
from kube.errors import one_line
from kube.event_recorder import ObjectReference
from kube.resources import GPU_DEVICES
from telemetry.agent_metrics import PARTITIONINGS
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from agent.driver.port import DriverDevice, PartitionDriver
    from agent.mig.dependencies import PartitionerDependencies
    from agent.mig.partition_planner import Step
    from api.clock import Clock
    from api.kinds.gpudevice import GPUDevice

COALESCE_S: Final = 0.1
MAX_STEPS: Final = 64
"""Most steps of one device at a time: destroying seven instances and creating seven, with the mode, is sixteen."""
TASK: Final = "device.partitioning"
SOURCE: Final = "partitioning"
ACTION: Final = "PartitionDevice"
"""Action of the problem in the registry."""

_log = structlog.get_logger()


@final
class Partitioner:
    """Brings the node's devices to the layout of their pools; `run` is its only task."""

    def __init__(
        self, driver: "PartitionDriver", dependencies: "PartitionerDependencies", clock: "Clock"
    ) -> None:
        self._driver = driver
        self._dependencies = dependencies
        self._clock = clock
        self._progress: dict[str, Progress] = {}
        # name of a GPUDevice -> progress of its device
        self._triggered = asyncio.Event()
        self._unavailable = Backoff()
        TASK_FAILURES.labels(TASK)
        for step in get_args(Action):
            for outcome in ("done", "refused"):
                PARTITIONINGS.labels(step.__name__, outcome)

    @property
    def partitioning(self) -> frozenset[str]:
        """UUIDs of devices with an unfinished layout: their instances are not to be published."""
        return frozenset(
            item.target.uuid for item in self._progress.values() if item.is_partitioning
        )

    @property
    def problem(self) -> str:
        """The reported obstacles, device by device; empty without any."""
        texts = (
            f"{device}: {progress.blocked.text}"
            for device, progress in sorted(self._progress.items())
            if progress.blocked is not None and progress.is_reported
        )
        return truncate("; ".join(texts), MAX_MESSAGE_LENGTH)

    def trigger(self) -> None:
        """Plan everything again soon: a GPUDevice, a pool or a pod changed."""
        self._triggered.set()

    async def run(self) -> NoReturn:
        """Partition devices until cancelled; failures are logged, counted and retried."""
        await self._dependencies.objects.synced()
        while True:
            self._triggered.clear()
            try:
                await self.work()
            except DriverUnavailableError as error:
                # The inventory collector reports that the driver is unavailable.
                TASK_FAILURES.labels(TASK).inc()
                delay_s = self._unavailable.fail()
                _log.warning(
                    "devices not partitioned", error=one_line(str(error)), retry_s=round(delay_s, 1)
                )
                await asyncio.sleep(delay_s)
                continue
            self._unavailable.succeed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._next_in_s()):
                    await self._triggered.wait()
            # GPUDevices change in bursts.
            await asyncio.sleep(COALESCE_S)

    async def work(self) -> None:
        """Bring every device as far as possible now; the driver is not called where nothing is due.

        Raises:
            DriverUnavailableError: the driver cannot be asked; the other devices wait, too.
        """
        now = self._clock.monotonic()
        targets = self._targets()
        for gone in self._progress.keys() - targets.keys():
            del self._progress[gone]
        due = [
            name
            for name, target in targets.items()
            if not self._progress_for(name, target).waits(now)
        ]
        try:
            current = await self._read_devices() if due else {}
            for name in due:
                current = await self._advance(name, current)
        finally:
            self._update_problem()

    async def _advance(
        self, name: str, current: "dict[str, DriverDevice]"
    ) -> "dict[str, DriverDevice]":
        """Bring one device as far as possible now; return the devices of the last snapshot."""
        before: DriverDevice | None = None
        try:
            for taken in itertools.count():
                # No await from here to the step: the state read now holds for it.
                device, target = self._target_of(name)
                if device is None or target is None:
                    self._progress.pop(name, None)
                    break
                progress = self._progress_for(name, target)
                device_now = current.get(target.uuid)
                step = self._plan(device_now, target, before, is_last=taken == MAX_STEPS)
                if isinstance(step, Action):
                    progress.begin()
                    step = await self._execute(target.uuid, step) or step
                if not isinstance(step, Action):
                    self._finish(device, device_now, step)
                    break
                progress.step()
                before = device_now
                current = await self._read_devices()
        finally:
            if before is not None:
                self._dependencies.after_change()
        return current

    def _plan(
        self,
        device_now: "DriverDevice | None",
        target: PartitionTarget,
        before: "DriverDevice | None",
        *,
        is_last: bool,
    ) -> "Step":
        if device_now is None:
            return Blocked(BlockReason.LOST, "the driver does not list the device")
        health, in_use = self._dependencies.health(device_now.uuid), self._dependencies.in_use()
        step = next_step(device_now, target.desired, health=health, in_use=in_use)
        if not isinstance(step, Action):
            return step
        if before is not None and mig_layout(before) == mig_layout(device_now):
            # A driver that accepts a step and does nothing is not called again at once.
            return Blocked(BlockReason.REFUSED, f"the driver accepted {_name(step)} without effect")
        if is_last:
            return Blocked(
                BlockReason.REFUSED,
                "its layout changes back repeatedly: stop the other program that partitions it",
            )
        return step

    async def _execute(self, uuid: str, step: Action) -> Blocked | None:
        """Take a step; return the obstacle if the driver rejects it."""
        try:
            await self._call_driver(uuid, step)
        except PartitioningError as error:
            PARTITIONINGS.labels(_name(step), "refused").inc()
            return Blocked(
                BlockReason.REFUSED, f"the driver rejects {_name(step)}: {truncate(str(error))}"
            )
        PARTITIONINGS.labels(_name(step), "done").inc()
        _log.info("partitioning step", uuid=uuid, step=str(step))
        return None

    async def _call_driver(self, uuid: str, step: Action) -> None:
        match step:
            case EnableMode():
                await self._driver.set_mig(uuid, is_enabled=True)
            case DisableMode():
                await self._driver.set_mig(uuid, is_enabled=False)
            case Destroy():
                await self._driver.destroy_instance(uuid, step.gpu_instance)
            case Complete():
                await self._driver.complete_instance(uuid, step.gpu_instance)
            case Create():  # pragma: no branch  # mypy proves that none is missing
                await self._driver.create_instance(uuid, step.profile, place=step.place)

    def _finish(
        self, device: "GPUDevice", device_now: "DriverDevice | None", end: Done | Blocked
    ) -> None:
        now = self._clock.monotonic()
        about = ObjectReference.to(GPU_DEVICES, device.metadata)
        progress = self._progress[device.name]
        uuid, desired = progress.target.uuid, str(progress.target.desired)
        if isinstance(end, Done):
            if progress.finish(now):
                count = len(device_now.instances) if device_now is not None else 0
                text = f"device {uuid} is {desired}" + (f" ({count} of them)" if count else "")
                _log.info("device partitioned", device=device.name, uuid=uuid, desired=desired)
                self._dependencies.events.normal(
                    about, EventReason.DEVICE_PARTITIONED, text, action=ACTION
                )
            return
        if end != progress.blocked:
            _log.warning(
                "device not partitioned",
                device=device.name,
                uuid=uuid,
                address=device.status.pci.address,
                desired=desired,
                cause=end.reason.value,
                text=end.text,
            )
        if progress.block(end, now):
            text = f"device {uuid} cannot be {desired} yet: {end.text}"
            self._dependencies.events.warning(
                about, EventReason.PARTITIONING_BLOCKED, text, action=ACTION
            )

    def _targets(self) -> dict[str, PartitionTarget]:
        names = sorted(device.name for device in self._dependencies.objects.devices())
        found = ((name, self._target_of(name)[1]) for name in names)
        return {name: target for name, target in found if target is not None}

    def _target_of(self, name: str) -> "tuple[GPUDevice | None, PartitionTarget | None]":
        devices = tuple(self._dependencies.objects.devices())
        device = next((item for item in devices if item.name == name), None)
        if device is None or [item.status.uuid for item in devices].count(device.status.uuid) > 1:
            # Of two GPUDevices with one UUID, neither defines the layout.
            return device, None
        desired = desired_layout(device, self._dependencies.objects.pools())
        if isinstance(desired, Unmanaged):
            return device, None
        return device, PartitionTarget(device.status.uuid, desired)

    def _progress_for(self, name: str, target: PartitionTarget) -> Progress:
        progress = self._progress.get(name)
        if progress is None or progress.target != target:
            progress = self._progress[name] = Progress(target)
        return progress

    async def _read_devices(self) -> "dict[str, DriverDevice]":
        return {device.uuid: device for device in (await self._driver.read()).devices}

    def _next_in_s(self) -> float:
        now = self._clock.monotonic()
        return max(
            0.0, min((item.next_at - now for item in self._progress.values()), default=EVERY_S)
        )

    def _update_problem(self) -> None:
        text = self.problem
        if text:
            self._dependencies.problems.set(SOURCE, AgentDegraded.PARTITIONING_BLOCKED, text)
        else:
            self._dependencies.problems.clear(SOURCE)


def _name(step: Action) -> str:
    return type(step).__name__

"""A fake of the driver (`agent.driver.port.PartitionDriver`) in memory, on the event loop: devices that a test changes.

    driver = FakeDriver(a_device("GPU-1", profiles=H100_PROFILES), a_device("GPU-2"))
    driver.emit_xid("GPU-1", 79)            # delivered to the waiter at once
    driver.device("GPU-2").is_lost = True   # in the next snapshot
    driver.go_away(AgentDegraded.DRIVER_HANGS)
    driver.come_back()                      # as after a restart: volatile counters start again
    driver.fail_at(3, crash())              # the third change from now on raises, before it is done

It refuses the same changes as NVML: destroying an instance in use, switching the mode while a process runs or
instances exist, creating an instance without room. Changes are counted one primitive at a time (an instance is
two: `create_gpu_instance` and `create_compute_instance`), and recorded in `changes`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from agent.driver.port import (
    DriverDevice,
    DriverEvent,
    DriverInstance,
    DriverLink,
    DriverSnapshot,
    EventKind,
    Profile,
)
from agent.errors import AgentError, DriverUnavailableError, PartitioningError, ResetRefusedError
from api.mig.layout import InstancePlacement
from inventory.health.recovery import RecoveryAction
from telemetry.conditions import AgentDegraded

T = TypeVar("T")


@dataclass(frozen=True)
class Form:
    """A profile, and what an instance of it takes of a device's 7 compute and 8 memory slices."""

    name: str
    compute: int
    memory: int

    @property
    def capacity(self) -> int:
        return min(COMPUTE_SLICES // self.compute, MEMORY_SLICES // self.memory)


COMPUTE_SLICES = 7
MEMORY_SLICES = 8
H100_PROFILES = (
    Form("1g.10gb", 1, 1),
    Form("1g.20gb", 1, 2),
    Form("2g.20gb", 2, 2),
    Form("3g.40gb", 3, 4),
    Form("4g.40gb", 4, 4),
    Form("7g.80gb", 7, 8),
)


@dataclass
class GpuInstance:
    id: int
    profile: str
    uuid: str = ""
    """Empty while it has no compute instance."""
    processes: int = 0
    start: int = 0
    """Its first memory slice."""


@dataclass
class Device:
    """A device as the double keeps it: change any field, the next look shows it."""

    uuid: str
    address: str = ""
    minor: int = 0
    product: str = "NVIDIA H100 80GB HBM3"
    memory_mib: int | None = 81559
    compute_capability: str | None = "9.0"
    power_limit_watts: int | None = 700
    max_power_limit_watts: int | None = 700
    links: tuple[DriverLink, ...] = ()
    profiles: tuple[Form, ...] = ()
    """None of them: the device knows no MIG."""
    is_mig_enabled: bool = False
    is_mig_pending: bool | None = None
    needs_reset: bool = False
    """A new mode waits for a reset."""
    instances: list[GpuInstance] = field(default_factory=list)
    processes: int = 0
    """On the whole device; those of instances are theirs."""
    temperature_celsius: int | None = 40
    shutdown_temperature_celsius: int | None = 92
    uncorrectable_errors: int | None = 0
    is_row_remap_failed: bool | None = False
    recovery_action: RecoveryAction | None = None
    """None: a driver that has no such field."""
    is_lost: bool = False
    is_listed: bool = True
    """False: the driver does not know it any more."""

    @property
    def layout(self) -> list[str]:
        """The profiles of complete instances, sorted."""
        return sorted(instance.profile for instance in self.instances if instance.uuid)

    def instance(self, number: int) -> GpuInstance:
        return next(item for item in self.instances if item.id == number)

    def free_starts(self, form: Form) -> list[int]:
        """The memory slices at which an instance may begin; none where too few compute slices are left."""
        forms = {item.name: item for item in self.profiles}
        taken = {
            at.start + number for at in self.instances for number in range(forms[at.profile].memory)
        }
        compute = sum(forms[at.profile].compute for at in self.instances)
        if compute + form.compute > COMPUTE_SLICES:
            return []
        last = (COMPUTE_SLICES if form.memory == 1 else MEMORY_SLICES) - form.memory
        starts = range(0, last + 1, form.memory)
        return [at for at in starts if taken.isdisjoint(range(at, at + form.memory))]

    def reset(self) -> None:
        """What `nvidia-smi --gpu-reset` does."""
        if self.is_mig_pending is not None:
            self.is_mig_enabled, self.is_mig_pending = self.is_mig_pending, None
        self.instances.clear()
        self.uncorrectable_errors = None if self.uncorrectable_errors is None else 0
        self.is_lost = False
        self.recovery_action = self.recovery_action and RecoveryAction.NONE

    def current(self) -> DriverDevice:
        if self.is_lost:
            return DriverDevice(
                address=self.address, uuid=self.uuid, minor=self.minor, product="", is_lost=True
            )
        return DriverDevice(
            address=self.address,
            uuid=self.uuid,
            minor=self.minor,
            product=self.product,
            memory_mib=self.memory_mib,
            compute_capability=self.compute_capability,
            power_limit_watts=self.power_limit_watts,
            max_power_limit_watts=self.max_power_limit_watts,
            links=self.links,
            is_mig_capable=bool(self.profiles),
            is_mig_enabled=self.is_mig_enabled,
            is_mig_pending=self.is_mig_pending,
            profiles=tuple(
                Profile(name=item.name, capacity=item.capacity) for item in self.profiles
            ),
            instances=tuple(
                DriverInstance(
                    gpu_instance=item.id,
                    profile=item.profile,
                    uuid=item.uuid,
                    compute_instance=0 if item.uuid else None,
                    start=item.start,
                )
                for item in sorted(self.instances, key=lambda instance: instance.id)
            ),
            processes=self.processes + sum(instance.processes for instance in self.instances),
            temperature_celsius=self.temperature_celsius,
            shutdown_temperature_celsius=self.shutdown_temperature_celsius,
            uncorrectable_errors=self.uncorrectable_errors,
            is_row_remap_failed=self.is_row_remap_failed,
            recovery_action=self.recovery_action,
        )


def a_device(uuid: str = "GPU-1", **changes: object) -> Device:
    """A healthy H100 without MIG; `profiles=H100_PROFILES` makes it capable."""
    return Device(uuid, **changes)  # type: ignore[arg-type]  # the dataclass says what there is


class Crash(BaseException):
    """The process dies here: nothing catches it but the test."""


def crash() -> Crash:
    return Crash("the agent was killed")


@dataclass(frozen=True)
class Change:
    """A primitive that was done to a device."""

    step: str
    """enable_mig, disable_mig, create_gpu_instance, create_compute_instance, destroy_gpu_instance."""
    uuid: str
    detail: str = ""
    """The profile of an instance."""


class FakeDriver:
    """See the module's text."""

    def __init__(
        self, *devices: Device, driver_version: str = "570.124.06", cuda_version: str = "12.8"
    ):
        self.driver_version = driver_version
        self.cuda_version = cuda_version
        self.devices: list[Device] = []
        for device in devices:
            self.plug(device)
        self.changes: list[Change] = []
        self.reads = 0
        self.before_change: Callable[[Change], None] = lambda _: None
        """Called right before each primitive, as for what happens between a check and a step."""
        self.reads_hang_s: float | None = None
        """A look fails after so long, as with a device that fell off; events are told nevertheless."""
        self._unavailable: DriverUnavailableError | None = None
        self._answer_after_s = 0.0
        self._events: list[DriverEvent] = []
        self._reported = asyncio.Event()
        self._serial = 0
        self._failures: dict[int, BaseException] = {}
        self._attempts = 0

    # --- what a test does ------------------------------------------------------------------------

    def plug(self, device: Device) -> None:
        """Add a device; one without an address gets the next free one, and its minor."""
        if not device.address:
            device.minor = device.minor or len(self.devices)
            device.address = f"0000:{0x17 + device.minor:02x}:00.0"
        self.devices.append(device)

    def unplug(self, uuid: str) -> None:
        self.devices.remove(self.device(uuid))

    def device(self, uuid: str) -> Device:
        return next(device for device in self.devices if device.uuid == uuid)

    def emit(self, event: DriverEvent) -> None:
        self._events.append(event)
        self._reported.set()

    def emit_xid(self, uuid: str, code: int) -> None:
        """`uuid` may be empty: the driver does not say which device."""
        self.emit(DriverEvent(uuid=uuid, kind=EventKind.XID, code=code))

    def emit_double_bit_ecc(self, uuid: str) -> None:
        self.emit(DriverEvent(uuid=uuid, kind=EventKind.DOUBLE_BIT_ECC))

    def go_away(
        self,
        reason: AgentDegraded = AgentDegraded.DRIVER_HANGS,
        text: str = "",
        after_s: float = 0.0,
    ) -> None:
        """From now on every call raises DriverUnavailable, after so many seconds (a hang's time-out)."""
        self._unavailable = DriverUnavailableError(
            reason, text or f"the driver is away: {reason.value}"
        )
        self._answer_after_s = after_s
        self._reported.set()

    def come_back(self, *, is_restarted: bool = True) -> None:
        """Answer again; a driver that was loaded again counts from 0, and has lost no device."""
        self._unavailable = None
        self._answer_after_s = 0.0
        if is_restarted:
            for device in self.devices:
                device.uncorrectable_errors = None if device.uncorrectable_errors is None else 0
                device.is_lost = False

    def fail_at(self, number: int, error: BaseException) -> None:
        """Raise at the number-th primitive from now on (1 is the next), before it is done."""
        self._failures[self._attempts + number] = error

    def heal(self) -> None:
        """Cancel the failures that have not happened yet."""
        self._failures.clear()

    # --- what the agent asks ---------------------------------------------------------------------

    async def read(self) -> DriverSnapshot:
        await self._answer()
        if self.reads_hang_s is not None:
            await asyncio.sleep(self.reads_hang_s)
            raise DriverUnavailableError(
                AgentDegraded.DRIVER_HANGS, "the reading did not return in time"
            )
        self.reads += 1
        return DriverSnapshot(
            driver_version=self.driver_version,
            cuda_version=self.cuda_version,
            devices=tuple(
                sorted(
                    (device.current() for device in self.devices if device.is_listed),
                    key=lambda device: device.address,
                )
            ),
        )

    async def recovery_actions(self) -> dict[str, RecoveryAction | None]:
        return {device.uuid: device.recovery_action for device in (await self.read()).devices}

    async def wait_for_events(self, within_s: float) -> Sequence[DriverEvent]:
        await self._answer()
        try:
            async with asyncio.timeout(within_s):
                await self._reported.wait()
        except TimeoutError:
            return ()
        self._reported.clear()
        await self._answer()
        events, self._events = self._events, []
        return events

    async def set_mig(self, uuid: str, *, is_enabled: bool) -> bool:
        device = await self._reached(uuid)
        if not device.profiles:
            raise PartitioningError(f"{uuid}: Not Supported")
        if device.processes or any(instance.processes for instance in device.instances):
            raise PartitioningError(f"{uuid}: In use by another client")
        if not is_enabled and device.instances:
            raise PartitioningError(f"{uuid}: In use by another client: it has GPU instances")
        self._change(Change("enable_mig" if is_enabled else "disable_mig", uuid))
        if device.is_mig_enabled == is_enabled:
            device.is_mig_pending = None
            return True
        if device.needs_reset:
            device.is_mig_pending = is_enabled
            return False
        device.is_mig_enabled = is_enabled
        return True

    async def create_instance(
        self, uuid: str, profile: str, *, place: InstancePlacement | None = None
    ) -> None:
        device = await self._reached(uuid)
        if not device.is_mig_enabled:
            raise PartitioningError(f"{uuid}: MIG is not enabled")
        form = next((item for item in device.profiles if item.name == profile), None)
        if form is None:
            raise PartitioningError(f"{uuid}: no profile {profile}")
        free = device.free_starts(form)
        start = next((at for at in free if place is None or at == place.start), None)
        if start is None:
            raise PartitioningError(f"{uuid}: Insufficient Resources for {profile}")
        self._change(Change("create_gpu_instance", uuid, profile))
        used = {instance.id for instance in device.instances}
        number = next(free for free in range(1, 99) if free not in used)
        device.instances.append(GpuInstance(number, profile, start=start))
        self._complete(device, number)

    async def complete_instance(self, uuid: str, gpu_instance: int) -> None:
        device = await self._reached(uuid)
        if not any(instance.id == gpu_instance for instance in device.instances):
            raise PartitioningError(f"{uuid}: no GPU instance {gpu_instance}")
        self._complete(device, gpu_instance)

    async def reset(self, uuids: Sequence[str]) -> None:
        for uuid in uuids:
            device = await self._reached(uuid)
            if device.processes:
                raise ResetRefusedError(f"{uuid}: In use by another client")
            self._change(Change("reset", uuid))
        for uuid in uuids:
            self.device(uuid).reset()

    async def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        device = await self._reached(uuid)
        one = next((instance for instance in device.instances if instance.id == gpu_instance), None)
        if one is None:
            raise PartitioningError(f"{uuid}: no GPU instance {gpu_instance}")
        # The hook may start something on it: NVML looks when it is asked to destroy, not before.
        self._change(
            Change("destroy_gpu_instance", uuid, one.profile), in_use=lambda: one.processes
        )
        device.instances.remove(one)

    # --- inside ----------------------------------------------------------------------------------

    def _complete(self, device: Device, number: int) -> None:
        one = device.instance(number)
        if one.uuid:
            raise PartitioningError(f"{device.uuid}: GPU instance {number} is complete")
        self._change(Change("create_compute_instance", device.uuid, one.profile))
        self._serial += 1
        one.uuid = f"MIG-{device.uuid.removeprefix('GPU-')}-{number}-{self._serial}"

    async def _answer(self) -> None:
        if self._unavailable is not None:
            await asyncio.sleep(self._answer_after_s)
        if self._unavailable is not None:
            raise self._unavailable

    async def _reached(self, uuid: str) -> Device:
        await self._answer()
        device = next((item for item in self.devices if item.uuid == uuid and item.is_listed), None)
        if device is None or device.is_lost:
            raise PartitioningError(f"{uuid}: GPU is lost")
        return device

    def _change(self, change: Change, *, in_use: Callable[[], int] = lambda: 0) -> None:
        self._attempts += 1
        error = self._failures.pop(self._attempts, None)
        if error is not None:
            raise error
        self.before_change(change)
        if in_use():
            raise PartitioningError(f"{change.uuid}: In use by another client")
        self.changes.append(change)


def refused(text: str = "Unknown Error") -> AgentError:
    """What the driver says no with, for `fail_at`."""
    return PartitioningError(text)


def at_once(coroutine: Coroutine[object, object, T]) -> T:
    """Run what never waits to its end, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError("it waits")

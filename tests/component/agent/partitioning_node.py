"""A node with a partitioner: a driver, cached objects, users of the devices, and recorded Events."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from agent.driver.port import PartitionDriver
from agent.health.states import HEALTHY, DeviceHealthState
from agent.mig.dependencies import PartitionerDependencies
from agent.mig.partitioner import Partitioner
from agent.problems.registry import ProblemRegistry
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import AllocationMode, EffectiveAllocation, GPUPool
from telemetry.reasons import EventReason
from tests.support import assignment
from tests.support.fake_driver import H100_PROFILES, Device, FakeDriver, a_device
from tests.support.loop_clock import LoopClock
from tests.support.recorded_events import RecordedEvents

SEVEN = ["1g.10gb"] * 7


def a_mig_device(number: int, **changes: Any) -> Device:
    return a_device(f"GPU-{number}", profiles=H100_PROFILES, **changes)


def a_pool(name: str = "a", profile: str = "", *, is_terminating: bool = False) -> GPUPool:
    """A pool whose recorded allocation is MIG with the profile, or whole devices without one."""
    pool = assignment.a_gpupool(name, is_terminating=is_terminating)
    mode = AllocationMode.MIG if profile else AllocationMode.EXCLUSIVE
    allocation = EffectiveAllocation(mode=mode, mig_profile=profile)
    status = msgspec.structs.replace(pool.status, allocation=allocation)
    return msgspec.structs.replace(pool, status=status)


class PartitioningNode:
    """Change its fields, then `trigger`."""

    def __init__(
        self, *devices: Device, profile: str = "1g.10gb", driver: PartitionDriver | None = None
    ) -> None:
        self.clock = LoopClock()
        self.fake = FakeDriver(*devices)
        self.driver: PartitionDriver = self.fake if driver is None else driver
        self.devices_by_name: dict[str, GPUDevice] = {}
        for number, device in enumerate(self.fake.devices, start=1):
            self.add_device(number, uuid=device.uuid)
        self.pools_by_name: dict[str, GPUPool] = {"a": a_pool("a", profile)}
        self.has_synced = asyncio.Event()
        self.has_synced.set()
        self.health_states: dict[str, DeviceHealthState] = {}
        self.used: set[str] | None = set()
        self.recorder = RecordedEvents()
        self.changes_seen: list[list[str]] = []
        """At each `after_change`: the layout of the first device."""
        self.problems = ProblemRegistry()
        self.restart()

    def restart(self) -> None:
        """As after a crash of the agent: no state is kept."""
        self.partitioner = Partitioner(
            self.driver,
            PartitionerDependencies(
                objects=self,
                health=lambda uuid: self.health_states.get(uuid, HEALTHY),
                in_use=lambda: self.used,
                events=self.recorder,
                problems=self.problems,
                after_change=self.after_change,
            ),
            self.clock,
        )

    def add_device(self, number: int, **changes: Any) -> GPUDevice:
        device = assignment.a_device(number, **{"owner": "a", **changes})
        self.devices_by_name[device.name] = device
        return device

    @property
    def device(self) -> Device:
        return self.fake.devices[0]

    @property
    def steps(self) -> list[str]:
        return [change.step for change in self.fake.changes]

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """Device, reason and note."""
        for event in self.recorder.events:
            is_good = event.reason == EventReason.DEVICE_PARTITIONED.value
            assert event.type == ("Normal" if is_good else "Warning")
        return [(event.regarding.name, event.reason, event.note) for event in self.recorder.events]

    def reasons(self) -> list[tuple[str, str]]:
        return [(device, reason) for device, reason, _ in self.events]

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[None]":
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.partitioner.run())
            yield
            task.cancel()

    async def synced(self) -> None:
        await self.has_synced.wait()

    def devices(self) -> Iterable[GPUDevice]:
        return self.devices_by_name.values()

    def pools(self) -> Mapping[str, GPUPool]:
        return self.pools_by_name

    def after_change(self) -> None:
        self.changes_seen.append(self.device.layout if self.fake.devices else [])

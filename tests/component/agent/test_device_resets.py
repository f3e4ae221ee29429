"""Resets that GPUDevices ask for: made once, together with neighbours, and under nobody."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator

import msgspec
import pytest

from agent.driver.port import DriverLink, LinkType
from agent.errors import DriverUnavailableError, ResetRefusedError
from agent.health.tracker import HealthTracker
from agent.health.watcher import HealthWatch
from agent.repair.resets import (
    OPEN_S,
    RETRY_S,
    WITHHELD_S,
    DeviceResets,
    ResetDependencies,
    reset_group,
)
from api.kinds.gpudevice import DeviceRepair, GPUDevice, RepairStep
from api.status_conditions import format_time
from inventory.health.recovery import RecoveryAction
from telemetry.conditions import AgentDegraded
from tests.component.agent.partitioning_node import PartitioningNode
from tests.support.builders import EPOCH
from tests.support.fake_driver import Change, a_device
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime


def linked(number: int, peer: int, *, is_direct: bool) -> "dict[str, tuple[DriverLink, ...]]":
    link = DriverLink(f"0000:{0x17 + peer:02x}:00.0", LinkType.NVLINK, 4, is_direct)
    return {"links": (link,)} if number != peer else {}


class ResettingNode:
    """Devices 1 and 2 with a direct NVLink, 3 with one to 1 by way of a switch."""

    def __init__(self) -> None:
        sick = RecoveryAction.GPU_RESET
        self.node = PartitioningNode(
            a_device("GPU-1", recovery_action=sick, **linked(0, 1, is_direct=True)),
            a_device("GPU-2", recovery_action=RecoveryAction.NONE, **linked(1, 0, is_direct=True)),
            a_device("GPU-3", recovery_action=RecoveryAction.NONE, **linked(2, 0, is_direct=False)),
        )
        self.driver = self.node.fake
        self.health = HealthWatch(
            self.driver, HealthTracker(), LoopClock(), on_change=self.note_change
        )
        self.withheld: list[list[str]] = []
        self.resets = DeviceResets(
            self.driver,
            ResetDependencies(
                objects=self.node,
                health=self.health,
                in_use=lambda: self.node.used,
                events=self.node.recorder,
            ),
        )

    def note_change(self) -> None:
        names = [f"GPU-{number}" for number in (1, 2, 3)]
        self.withheld.append([name for name in names if not self.health.health(name).is_healthy])

    def ask(self, attempt: int = 1, step: RepairStep = RepairStep.RESETTING) -> None:
        """Let the first device's object ask for a reset."""
        (name, device), *_ = self.node.devices_by_name.items()
        started = format_time(EPOCH + dt.timedelta(minutes=attempt))
        repair = DeviceRepair(step=step, attempt=attempt, since=started, started=started)
        status = msgspec.structs.replace(device.status, repair=repair)
        changed: GPUDevice = msgspec.structs.replace(device, status=status)
        self.node.devices_by_name[name] = changed
        self.resets.trigger()

    @property
    def outcome(self) -> str:
        return self.health.health("GPU-1").reset


@pytest.fixture
async def resetting() -> AsyncIterator[ResettingNode]:
    node = ResettingNode()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(node.resets.run())
        await asyncio.sleep(1.0)
        yield node
        task.cancel()


async def test_a_device_is_reset_once_together_with_its_neighbour(resetting: ResettingNode):
    resetting.ask()
    await asyncio.sleep(WITHHELD_S + 1)
    assert resetting.driver.changes == [Change("reset", "GPU-1"), Change("reset", "GPU-2")]
    assert resetting.driver.device("GPU-1").recovery_action is RecoveryAction.NONE
    assert resetting.outcome == "attempt-2026-01-01T000100Z-Done"
    # Both were withheld before, and neither is after.
    assert resetting.withheld[0] == ["GPU-1", "GPU-2"]
    assert resetting.withheld[-1] == []
    resetting.resets.trigger()
    await asyncio.sleep(5 * RETRY_S)
    assert len(resetting.driver.changes) == 2
    resetting.ask(attempt=2)
    await asyncio.sleep(WITHHELD_S + 1)
    assert len(resetting.driver.changes) == 4
    assert resetting.outcome == "attempt-2026-01-01T000200Z-Done"


@pytest.mark.parametrize("step", sorted(set(RepairStep) - {RepairStep.RESETTING}, key=str))
async def test_no_other_step_resets(resetting: ResettingNode, step: RepairStep):
    resetting.ask(step=step)
    await asyncio.sleep(5 * RETRY_S)
    assert resetting.driver.changes == []


@pytest.mark.parametrize("used", [{"GPU-1"}, {"GPU-2::3"}, {"MIG-1::0"}, None])
async def test_nothing_is_reset_under_a_pod(resetting: ResettingNode, used: set[str] | None):
    resetting.node.used = used
    resetting.ask()
    await asyncio.sleep(3 * RETRY_S)
    assert resetting.driver.changes == []
    assert resetting.outcome == "attempt-2026-01-01T000100Z-InUse"
    assert len(resetting.node.recorder.events) == 1
    # Its healthy neighbour, which may be of another pool, is not withheld while it waits.
    assert all("GPU-2" not in withheld for withheld in resetting.withheld)
    resetting.node.used = set()
    await asyncio.sleep(RETRY_S + WITHHELD_S + 1)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-Done"


async def test_nothing_is_reset_under_a_process(resetting: ResettingNode):
    resetting.driver.device("GPU-2").processes = 1
    resetting.ask()
    await asyncio.sleep(WITHHELD_S + 1)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-InUse"
    assert "processes run on GPU-2" in resetting.node.recorder.events[-1].note


async def test_a_program_that_has_it_open_keeps_no_neighbour_withheld(resetting: ResettingNode):
    resetting.driver.fail_at(1, ResetRefusedError("GPU is in use by another client"))
    resetting.ask()
    await asyncio.sleep(OPEN_S - RETRY_S)
    resetting.resets.trigger()
    await asyncio.sleep(1.0)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-InUse"
    assert sum("GPU-2" in withheld for withheld in resetting.withheld) == 1
    await asyncio.sleep(3 * RETRY_S)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-Done"


async def test_a_link_that_one_end_reports_connects_both():
    node = ResettingNode()
    silent = node.driver.device("GPU-1")
    silent.links = ()
    assert reset_group((await node.driver.read()).devices, "GPU-1") == ("GPU-1", "GPU-2")


async def test_a_refused_reset_is_told_in_the_drivers_words(resetting: ResettingNode):
    resetting.driver.fail_at(1, ResetRefusedError("nvidia-smi --gpu-reset: Not Supported"))
    resetting.ask()
    await asyncio.sleep(WITHHELD_S + 1)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-Refused"
    assert "Not Supported" in resetting.node.recorder.events[-1].note


async def test_a_reset_that_hangs_is_named_and_withholds_its_neighbour_no_longer(
    resetting: ResettingNode,
):
    hangs = DriverUnavailableError(AgentDegraded.DRIVER_HANGS, "it did not end within 60 s")
    resetting.driver.fail_at(1, hangs)
    resetting.ask()
    await asyncio.sleep(WITHHELD_S + 1)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-Hangs"
    assert "did not end within 60 s" in resetting.node.recorder.events[-1].note
    assert resetting.withheld[-1] == []


async def test_a_driver_that_does_not_answer_is_waited_for(resetting: ResettingNode):
    resetting.driver.go_away(AgentDegraded.DRIVER_HANGS)
    resetting.ask()
    await asyncio.sleep(WITHHELD_S + 1)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-InUse"
    resetting.driver.come_back()
    await asyncio.sleep(RETRY_S + WITHHELD_S + 1)
    assert resetting.outcome == "attempt-2026-01-01T000100Z-Done"

"""From an event of the driver to the health state that is published, in virtual time."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from agent.driver.port import DriverEvent, EventKind
from agent.health.states import HEALTHY, HealthState
from agent.health.tracker import HealthTracker
from agent.health.watcher import ACTIONS_S, HealthWatch
from agent.inventory.collector import InventoryCollector
from agent.inventory.node_devices import PublishedFeatures
from agent.inventory.node_files import NodeFiles, NodePaths
from agent.problems.registry import ProblemRegistry
from api.foreign.nodefeature import AgentDevice
from api.kinds.gpudevice import LastXid
from api.nodefiles.node_devices_file import DEVICES_FILE, NodeDevices
from api.status_conditions import format_time
from inventory.health.recovery import RecoveryAction
from telemetry.conditions import AgentDegraded
from tests.support.fake_driver import FakeDriver, a_device
from tests.support.loop_clock import LoopClock
from tests.support.metric_samples import samples, series

pytestmark = pytest.mark.looptime


class MonitoredNode:
    """A driver, the health states on its devices, and when they were said to have changed."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.driver = FakeDriver(a_device("GPU-1"), a_device("GPU-2"))
        self.reported: list[float] = []
        self.watch = HealthWatch(
            self.driver,
            HealthTracker(),
            self.clock,
            on_change=lambda: self.reported.append(self.now),
        )

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def reasons(self) -> list[str]:
        return [self.watch.health(uuid).reason for uuid in ("GPU-1", "GPU-2")]

    async def observe(self) -> None:
        self.watch.observe(await self.driver.read())


@pytest.fixture
async def node() -> AsyncIterator[MonitoredNode]:
    """That has looked once, and waits for events."""
    node = MonitoredNode()
    await node.observe()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(node.watch.run())
        await asyncio.sleep(0)
        yield node
        task.cancel()


def counted(kind: EventKind, verdict: str) -> float:
    return samples()[series("gpu_agent_driver_events_total", kind=kind.value, verdict=verdict)]


async def test_an_event_is_signalled_at_once(node: MonitoredNode):
    at = node.now
    node.driver.emit_xid("GPU-1", 79)
    await asyncio.sleep(0.001)
    assert node.reported == [at]
    assert node.reasons() == ["Xid79", ""]


async def test_events_that_come_together_are_signalled_once(node: MonitoredNode):
    node.driver.emit_xid("GPU-1", 79)
    node.driver.emit_xid("GPU-2", 48)
    node.driver.emit_double_bit_ecc("GPU-2")
    await asyncio.sleep(0.001)
    assert len(node.reported) == 1
    assert node.reasons() == ["Xid79", "Xid48"]


async def test_an_event_without_a_change_of_health_is_counted_and_not_signalled(
    node: MonitoredNode,
):
    faults, ignored = counted(EventKind.XID, "fault"), counted(EventKind.XID, "ignored")
    node.driver.emit_xid("GPU-1", 31)
    await asyncio.sleep(1.0)
    assert node.reported == []
    node.driver.emit_xid("GPU-1", 79)
    await asyncio.sleep(1.0)
    node.driver.emit_xid("GPU-1", 79)
    await asyncio.sleep(1.0)
    assert len(node.reported) == 1
    assert counted(EventKind.XID, "fault") == faults + 2
    assert counted(EventKind.XID, "ignored") == ignored + 1


async def test_each_device_has_its_last_xid_with_its_time_a_fault_or_not(node: MonitoredNode):
    assert node.watch.health("GPU-1").last_xid is None
    began = format_time(node.clock.utc_now())
    node.driver.emit_xid("GPU-1", 31)
    await asyncio.sleep(1.0)
    assert node.watch.health("GPU-1").last_xid == LastXid(code=31, time=began)
    assert node.watch.health("GPU-2").last_xid is None
    node.driver.emit_xid("", 79)
    await asyncio.sleep(1.0)
    assert {node.watch.health(uuid).last_xid for uuid in ("GPU-1", "GPU-2")} == {
        LastXid(code=79, time=format_time(node.clock.utc_now() - dt.timedelta(seconds=1)))
    }


async def test_an_xid_that_repeats_itself_has_a_new_time_once_a_minute(node: MonitoredNode):
    times = set()
    for _ in range(12):
        node.driver.emit_xid("GPU-1", 31)
        await asyncio.sleep(10.0)
        xid = node.watch.last_xid("GPU-1")
        assert xid is not None
        times.add(xid.time)
    assert len(times) == 2


async def test_a_change_of_health_is_logged_with_its_device(node: MonitoredNode):
    with capture_logs() as logs:
        node.driver.emit_xid("GPU-1", 79)
        await asyncio.sleep(1.0)
        node.driver.device("GPU-1").is_lost = True
        await node.observe()
        node.driver.device("GPU-1").reset()
        await node.observe()
    reported = [line for line in logs if line["event"] == "device health changed"]
    assert [(line["before"], line["after"], line["log_level"]) for line in reported] == [
        ("Healthy", "Xid79", "warning"),
        ("Xid79", "Lost", "warning"),
        ("Lost", "Healthy", "info"),
    ]
    assert {(line["device"], line["address"]) for line in reported} == {("GPU-1", "0000:17:00.0")}


async def test_devices_are_counted_by_health(node: MonitoredNode):
    def devices() -> dict[str, float]:
        return {
            state.value: samples()[series("gpu_agent_cards", health=state.value)]
            for state in HealthState
        }

    assert devices() == {"Healthy": 2, "Unhealthy": 0, "Lost": 0}
    node.driver.emit_xid("GPU-1", 79)
    await asyncio.sleep(0.001)
    assert devices() == {"Healthy": 1, "Unhealthy": 1, "Lost": 0}
    node.driver.device("GPU-2").is_lost = True
    await node.observe()
    assert devices() == {"Healthy": 0, "Unhealthy": 1, "Lost": 1}


def know_actions(node: MonitoredNode) -> None:
    """Let the driver have the field of recovery actions."""
    for device in node.driver.devices:
        device.recovery_action = RecoveryAction.NONE


@pytest.mark.parametrize(
    ("action", "expected"), [(RecoveryAction.NONE, ""), (RecoveryAction.GPU_RESET, "Xid94")]
)
async def test_an_xid_is_judged_by_the_action_that_the_driver_then_has(
    node: MonitoredNode, action: RecoveryAction, expected: str
):
    know_actions(node)
    await node.observe()
    node.driver.device("GPU-1").recovery_action = action
    node.driver.emit_xid("GPU-1", 94)
    await asyncio.sleep(0.001)
    assert node.reasons() == [expected, ""]
    assert len(node.reported) == bool(expected)


async def test_a_driver_that_does_not_say_the_action_costs_half_a_second(node: MonitoredNode):
    know_actions(node)
    await node.observe()
    at = node.now
    node.driver.reads_hang_s = 60.0
    node.driver.emit_xid("GPU-1", 94)
    await asyncio.sleep(1.0)
    assert node.reported == [at + ACTIONS_S]
    assert node.reasons() == ["Xid94", ""]
    assert node.watch.health("GPU-1").action is RecoveryAction.UNKNOWN
    node.driver.reads_hang_s = None
    await node.observe()
    assert node.reasons() == ["", ""]


async def test_a_driver_without_actions_is_not_asked(node: MonitoredNode):
    node.driver.reads_hang_s = 60.0
    node.driver.emit_xid("GPU-1", 109)
    await asyncio.sleep(0.001)
    assert node.watch.health("GPU-1").action is RecoveryAction.GPU_RESET


@pytest.mark.parametrize("reason", [AgentDegraded.DRIVER_HANGS, AgentDegraded.DRIVER_NOT_LOADED])
async def test_events_are_heard_again_after_the_driver_was_away(
    node: MonitoredNode, reason: AgentDegraded
):
    failures = series("gpu_task_failures_total", task="driver.events")
    before = samples()[failures]
    with capture_logs() as logs:
        node.driver.go_away(reason)
        await asyncio.sleep(600.0)
        tries = samples()[failures] - before
        node.driver.come_back(is_restarted=False)
        await asyncio.sleep(6.0)
    # Asked again within seconds, and said once.
    assert 100 <= tries <= 3000
    lines = [line["event"] for line in logs if line["log_level"] in {"warning", "info"}]
    assert lines == ["driver events not available", "driver events available again"]
    node.driver.emit_xid("GPU-1", 79)
    await asyncio.sleep(0.001)
    assert node.reasons() == ["Xid79", ""]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (AgentDegraded.DRIVER_HANGS, "Xid79"),
        (AgentDegraded.DRIVER_FAILS, "Xid79"),
        (AgentDegraded.DRIVER_MISSING, ""),
        (AgentDegraded.DRIVER_NOT_LOADED, ""),
    ],
)
async def test_a_driver_that_was_unloaded_begins_again_and_one_that_hung_does_not(
    node: MonitoredNode, reason: AgentDegraded, expected: str
):
    node.driver.emit_xid("GPU-1", 79)
    await asyncio.sleep(1.0)
    node.driver.go_away(reason)
    await asyncio.sleep(60.0)
    # A driver that does not answer says nothing, however long.
    assert node.reasons() == ["Xid79", ""]
    node.driver.come_back()
    await node.observe()
    assert node.reasons() == [expected, ""]


async def test_looks_heal_after_the_quiet_time(node: MonitoredNode):
    node.driver.emit_xid("GPU-1", 79)
    await asyncio.sleep(299.0)
    await node.observe()
    assert node.reasons() == ["Xid79", ""]
    await asyncio.sleep(2.0)
    await node.observe()
    health, xid = node.watch.health("GPU-1"), node.watch.last_xid("GPU-1")
    assert health == replace(HEALTHY, last_xid=xid)
    assert xid is not None


async def test_a_fault_is_in_the_file_of_devices_within_a_second_while_the_driver_hangs(
    tmp_path: Path,
):
    """The whole way: event, health state, file; a device that falls off its bus often takes NVML with it."""
    clock, problems = LoopClock(), ProblemRegistry()
    driver = FakeDriver(a_device("GPU-1"), a_device("GPU-2"))
    paths = NodePaths(
        sysfs=tmp_path / "sys",
        proc=tmp_path / "proc",
        dev=tmp_path / "dev",
        driver_root=tmp_path / "root",
        run_directory=tmp_path / "run",
        cdi_directory=tmp_path / "cdi",
    )
    published: list[PublishedFeatures] = []
    watch = HealthWatch(
        driver,
        HealthTracker(),
        clock,
        on_change=lambda: inventory.health_changed(),  # noqa: PLW0108  # it is made below
    )
    inventory = InventoryCollector(
        driver,
        health=watch,
        files=NodeFiles(paths, problems),
        publisher=Publishing(published),
        problems=problems,
        paths=paths,
    )

    def unhealthy() -> list[tuple[str, str]]:
        devices = msgspec.json.decode(
            (paths.run_directory / DEVICES_FILE).read_bytes(), type=NodeDevices
        )
        return [(device.uuid, device.reason) for device in devices.devices if not device.is_healthy]

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(inventory.run()),
            group.create_task(watch.run()),
        ]
        await asyncio.sleep(2.0)
        assert unhealthy() == []
        driver.reads_hang_s = 5.0
        await asyncio.sleep(0.1)
        driver.emit_xid("GPU-1", 79)
        await asyncio.sleep(0.01)
        assert unhealthy() == [("GPU-1", "Xid79")]
        assert [device[AgentDevice.HEALTH] for device in published[-1].devices] == [
            "Unhealthy",
            "Healthy",
        ]
        # And so it stays while the driver says nothing.
        await asyncio.sleep(3600.0)
        assert unhealthy() == [("GPU-1", "Xid79")]
        driver.reads_hang_s = None
        await asyncio.sleep(15.0)
        assert unhealthy() == []
        for task in tasks:
            task.cancel()


class Publishing:
    """What was published, last one last."""

    def __init__(self, published: list[PublishedFeatures]) -> None:
        self._published = published

    def publish(self, published: PublishedFeatures) -> None:
        self._published.append(published)


class NothingToWaitOn(FakeDriver):
    """As where there is no device: it returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def wait_for_events(self, within_s: float) -> Sequence[DriverEvent]:
        self.asked += 1
        return ()


async def test_a_driver_that_has_nothing_to_wait_on_is_asked_once_a_second():
    driver = NothingToWaitOn()
    watch = HealthWatch(driver, HealthTracker(), LoopClock(), on_change=lambda: None)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        await asyncio.sleep(60.5)
        task.cancel()
    assert 50 <= driver.asked <= 70

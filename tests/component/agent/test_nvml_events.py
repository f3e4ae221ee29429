"""What NVML tells by itself."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path

import pytest

from agent.driver.port import DriverEvent, EventKind
from agent.errors import DriverUnavailableError
from agent.nvml.call_thread import MAX_STUCK
from telemetry.conditions import AgentDegraded
from tests.component.agent.nvml_node import NvmlNode, nvml_node
from tests.support.nvml.library import DOUBLE_BIT_ECC, XID, a_device
from tests.support.polling import LIMIT_S, until

FIRST, SECOND, DEAF = a_device(0), a_device(1), a_device(2, events=0)
POWER_STATE = 4


def xid(uuid: str, code: int) -> DriverEvent:
    return DriverEvent(uuid=uuid, kind=EventKind.XID, code=code)


async def test_fault_is_reported_at_once_and_once(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        await node.listen()
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            waiting = group.create_task(node.driver.wait_for_events(30.0))
            await asyncio.sleep(0)
            node.nvml.emit_xid(SECOND.uuid, 79)
        assert waiting.result() == (xid(SECOND.uuid, 79),)
        assert await node.driver.wait_for_events(0.1) == ()


async def test_both_kinds_are_reported_and_others_are_not(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, a_device(0, events=XID | DOUBLE_BIT_ECC | POWER_STATE)) as node:
        await node.listen()
        node.nvml.emit(FIRST.uuid, POWER_STATE, 1)
        node.nvml.emit(FIRST.uuid, DOUBLE_BIT_ECC, 5)
        assert await node.event() == DriverEvent(uuid=FIRST.uuid, kind=EventKind.DOUBLE_BIT_ECC)
        assert await node.driver.wait_for_events(0.1) == ()


async def test_events_between_two_waits_are_kept_each_once(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.listen()
        for _ in range(20):
            node.nvml.emit_xid(FIRST.uuid, 63)
        node.nvml.emit_xid(FIRST.uuid, 64)
        found: list[DriverEvent] = []
        while xid(FIRST.uuid, 64) not in found:
            found += await node.driver.wait_for_events(5.0)
            await asyncio.sleep(0.3)  # Nobody waits meanwhile, and the thread goes on.
    assert xid(FIRST.uuid, 63) in found
    assert len(found) < 10


async def test_device_without_events_silences_no_other(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEAF, SECOND) as node:
        await node.listen()
        node.nvml.emit_xid(SECOND.uuid, 48)
        assert await node.event() == xid(SECOND.uuid, 48)


async def test_no_device_with_events_is_no_error(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEAF) as node:
        assert await node.driver.wait_for_events(0.3) == ()


async def test_lost_device_silences_no_other(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        await node.listen()
        before = node.nvml.listened()
        node.nvml.lose(FIRST.uuid)
        # The event set of before fails now, and is made again without that device.
        await node.listen(again_after=before)
        for code in range(100, 103):
            node.nvml.emit_xid(SECOND.uuid, code)
            assert await node.event() == xid(SECOND.uuid, code)


async def test_xid_of_a_device_that_is_lost_at_once_has_its_name(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.listen()
        with node.nvml.edit() as lines:
            lines["device.0.lost"] = "1"
            lines["event.1"] = f"0 {XID} 79"
        assert await node.event() == xid(FIRST.uuid, 79)


async def test_old_library_without_waiting_is_named_as_the_cause(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, defines=("OLD_DRIVER",)) as node:
        with pytest.raises(DriverUnavailableError, match="Function Not Found") as raised:
            await node.event()
        assert raised.value.reason is AgentDegraded.DRIVER_FAILS
        assert (await node.driver.read()).devices


async def test_driver_that_was_loaded_again_is_heard_again(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.driver.read()
        await node.listen()
        node.nvml.restart_driver()
        with pytest.raises(DriverUnavailableError):
            await node.event()
        await node.listen()
        node.nvml.emit_xid(FIRST.uuid, 95)
        assert await node.event() == xid(FIRST.uuid, 95)


async def test_waiting_that_hangs_is_reported_and_snapshots_go_on(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, read_s=0.3) as node:
        await node.listen()
        node.nvml.hang("nvmlEventSetWait_v2")
        with pytest.raises(DriverUnavailableError) as raised:
            await node.event()
        assert raised.value.reason is AgentDegraded.DRIVER_HANGS
        assert (await node.driver.read()).devices
        node.nvml.emit_xid(FIRST.uuid, 95)
        node.nvml.unhang()
        async with asyncio.timeout(LIMIT_S):
            assert await heard(node) == xid(FIRST.uuid, 95)


async def heard(node: NvmlNode) -> DriverEvent:
    """Return the next event, however often the driver is not available before."""
    while True:
        try:
            return await node.event()
        except DriverUnavailableError:
            await asyncio.sleep(0.01)


async def test_few_threads_wait_for_a_driver_that_hangs(tmp_path: Path) -> None:
    before = event_threads()
    async with nvml_node(tmp_path, FIRST, read_s=0.05, retry_s=0.1) as node:
        await node.listen()
        node.nvml.hang("nvmlEventSetWait_v2")
        # Once there are as many as there may be, five more intervals of retries start none.
        over: float | None = None
        async with asyncio.timeout(LIMIT_S):
            while over is None or time.monotonic() < over:
                with contextlib.suppress(DriverUnavailableError):
                    assert await node.driver.wait_for_events(0.05) == ()
                await asyncio.sleep(0.01)
                if over is None and len(event_threads() - before) == MAX_STUCK:
                    over = time.monotonic() + 0.5
        assert len(event_threads() - before) == MAX_STUCK
        node.nvml.unhang()
        await until(lambda: len(event_threads() - before) == 1)


def event_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "driver-events"}

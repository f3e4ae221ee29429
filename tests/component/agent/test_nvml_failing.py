"""A driver that is not there, goes, comes again, or does not answer."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent.errors import DriverUnavailableError, PartitioningError
from agent.nvml.call_thread import MAX_STUCK
from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock
from telemetry.conditions import AgentDegraded
from tests.component.agent.nvml_node import NvmlNode, nvml_node
from tests.support.nvml.library import a_device
from tests.support.polling import LIMIT_S, until

FIRST, SECOND = a_device(0), a_device(1)


async def unavailable(driver: NvmlDriver) -> DriverUnavailableError:
    with pytest.raises(DriverUnavailableError) as raised:
        await driver.read()
    return raised.value


def call_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "driver-calls"}


async def test_node_without_a_library_has_an_error_with_the_cure(tmp_path: Path) -> None:
    missing = await unavailable(NvmlDriver(SystemClock(), driver_root=tmp_path))
    assert missing.reason is AgentDegraded.DRIVER_MISSING
    assert f"there is no libnvidia-ml.so.1 under {tmp_path}: install" in str(missing)


async def test_library_that_is_none_is_named(tmp_path: Path) -> None:
    nonsense = tmp_path / "libnvidia-ml.so.1"
    nonsense.write_text("nonsense", encoding="ascii")
    missing = await unavailable(NvmlDriver(SystemClock(), library=nonsense))
    assert missing.reason is AgentDegraded.DRIVER_MISSING
    assert str(nonsense) in str(missing)


async def test_events_without_a_library_have_the_same_error(tmp_path: Path) -> None:
    with pytest.raises(DriverUnavailableError) as raised:
        await NvmlDriver(SystemClock(), driver_root=tmp_path).wait_for_events(10.0)
    assert raised.value.reason is AgentDegraded.DRIVER_MISSING


@pytest.mark.parametrize(
    "folder",
    ["usr/lib/x86_64-linux-gnu", "usr/lib64", "run/nvidia/driver/usr/lib/aarch64-linux-gnu"],
)
async def test_library_is_found_under_the_drivers_root(tmp_path: Path, folder: str) -> None:
    async with nvml_node(tmp_path / "made", FIRST) as node:
        place = tmp_path / "root" / folder
        place.mkdir(parents=True)
        versioned = place / "libnvidia-ml.so.570.86.15"
        versioned.symlink_to(node.nvml.library)
        (place / "libnvidia-ml.so.1").symlink_to(versioned.name)
        driver = NvmlDriver(SystemClock(), driver_root=tmp_path / "root")
        # The link that leaves the root is followed within it, where nothing is.
        assert (await unavailable(driver)).reason is AgentDegraded.DRIVER_MISSING
        versioned.unlink()
        node.nvml.library.rename(versioned)
        node.nvml.state.rename(place / "nvml.state")
        assert [device.uuid for device in (await driver.read()).devices] == [FIRST.uuid]
        await driver.close()
        (place / "nvml.state").rename(node.nvml.state)


async def test_each_call_is_of_the_library_that_was_loaded_last(tmp_path: Path) -> None:
    async with nvml_node(tmp_path / "first", FIRST) as node:
        assert (await node.device(FIRST.uuid)).is_mig_capable
    async with nvml_node(tmp_path / "old", SECOND, defines=("OLD_DRIVER",)) as node:
        assert not (await node.device(SECOND.uuid)).is_mig_capable
    async with nvml_node(tmp_path / "last", FIRST) as node:
        node.nvml.run_process(FIRST.uuid, 7)
        with pytest.raises(PartitioningError, match="In use"):
            await node.driver.set_mig(FIRST.uuid, is_enabled=True)


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [
        pytest.param(9, AgentDegraded.DRIVER_NOT_LOADED, "modprobe nvidia", id="not loaded"),
        pytest.param(4, AgentDegraded.DRIVER_FAILS, "privileged", id="no permission"),
        pytest.param(18, AgentDegraded.DRIVER_FAILS, "upgraded", id="another version"),
        pytest.param(999, AgentDegraded.DRIVER_FAILS, "Unknown", id="nobody knows"),
    ],
)
async def test_driver_that_does_not_start_has_an_error_with_the_cause(
    tmp_path: Path, code: int, reason: AgentDegraded, text: str
) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.unload_driver(code)
        failed = await unavailable(node.driver)
        assert failed.reason is reason
        assert text in str(failed)
        node.nvml.restart_driver()
        assert (await node.driver.read()).devices


@pytest.mark.parametrize("is_listening", [False, True])
async def test_driver_that_was_loaded_again_is_seen_at_the_next_look(
    tmp_path: Path, is_listening: bool
) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        if is_listening:
            await node.listen()
        await node.driver.read()
        node.nvml.restart_driver("580.1")
        assert (await node.driver.read()).driver_version == "580.1"


async def test_driver_that_went_away_is_missed_and_found_again(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.driver.read()
        await node.listen()
        node.nvml.unload_driver()
        assert (await unavailable(node.driver)).reason is AgentDegraded.DRIVER_NOT_LOADED
        node.nvml.restart_driver()
        assert (await node.driver.read()).devices


async def test_devices_that_answer_nothing_after_a_restart_are_asked_again(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.driver.read()
        # Versions are remembered by the library; only handles are dead.
        node.nvml.fail("nvmlDeviceGetHandleByIndex_v2", 999)
        assert not (await node.driver.read()).devices[0].is_lost


async def test_device_that_never_answers_does_not_open_sessions_for_ever(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.driver.read()
        node.nvml.fail("nvmlDeviceGetHandleByIndex_v2", 999, times=-1)
        assert [device.is_lost for device in (await node.driver.read()).devices] == [True]
        node.nvml.fail("nvmlInitWithFlags", 9)
        # One more would fail.
        for _ in range(3):
            assert [device.is_lost for device in (await node.driver.read()).devices] == [True]


async def test_device_that_is_plugged_in_is_seen(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.listen()
        await node.driver.read()
        node.nvml.plug(SECOND)
        assert len((await node.driver.read()).devices) == 1  # NVML does not see it by itself.
        node.bus.add("0000:11:00.0")
        assert len((await node.driver.read()).devices) == 2
        await node.listen()
        node.nvml.emit_xid(SECOND.uuid, 79)
        assert (await node.event()).uuid == SECOND.uuid
        node.nvml.unplug(FIRST.uuid)
        node.bus.add("anything")
        assert [device.uuid for device in (await node.driver.read()).devices] == [SECOND.uuid]


async def test_driver_is_let_go_of_and_asked_again(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        await node.driver.read()
        await node.listen()
        node.nvml.plug(SECOND)
        await node.driver.close()
        assert node.nvml.listening() == 0
        # NVML finds devices when it is initialised, which it is again only if no process had it open.
        assert len((await node.driver.read()).devices) == 2
        await node.listen()


async def test_call_that_hangs_fails_in_time_then_at_once_and_recovers(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, read_s=0.3) as node:
        await node.driver.read()
        node.nvml.hang("nvmlDeviceGetName")
        started = time.monotonic()
        assert (await unavailable(node.driver)).reason is AgentDegraded.DRIVER_HANGS
        assert time.monotonic() - started < 5.0
        started = time.monotonic()
        for _ in range(10):
            assert (await unavailable(node.driver)).reason is AgentDegraded.DRIVER_HANGS
        assert time.monotonic() - started < 1.5  # Ten waits would be three.
        node.nvml.unhang()
        async with asyncio.timeout(LIMIT_S):
            await read(node)


async def read(node: NvmlNode) -> None:
    while True:
        try:
            await node.driver.read()
        except DriverUnavailableError:
            await asyncio.sleep(0.01)
        else:
            return


async def test_caller_that_goes_away_leaves_the_next_one_a_sound_thread(tmp_path: Path) -> None:
    before = call_threads()
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.hang("nvmlDeviceGetName", 0.3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await node.driver.read()
        one = call_threads() - before
        assert (await node.driver.read()).devices
        assert call_threads() - before == one


async def test_fresh_threads_are_tried_and_there_are_few(tmp_path: Path) -> None:
    before = call_threads()
    async with nvml_node(tmp_path, FIRST, read_s=0.05, retry_s=0.1) as node:
        node.nvml.hang("nvmlDeviceGetName")
        # Once there are as many as there may be, five more intervals of retries start none.
        over: float | None = None
        async with asyncio.timeout(LIMIT_S):
            while over is None or time.monotonic() < over:
                await unavailable(node.driver)
                await asyncio.sleep(0.01)
                if over is None and len(call_threads() - before) == MAX_STUCK:
                    over = time.monotonic() + 0.5
        assert len(call_threads() - before) == MAX_STUCK
        node.nvml.unhang()
        async with asyncio.timeout(LIMIT_S):
            await read(node)
        # Those that returned late have ended, each with its session.
        await until(lambda: len(call_threads() - before) == 1)
        node.nvml.restart_driver("600")
        assert (await node.driver.read()).driver_version == "600"


async def test_fresh_thread_answers_while_another_is_stuck(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, read_s=0.1, retry_s=0.2) as node:
        node.nvml.hang("nvmlDeviceGetName", 1.0)
        await unavailable(node.driver)
        # The one that is stuck stays so; the order holds for new calls no more.
        with node.nvml.edit() as lines:
            lines["hang.nvmlDeviceGetSerial"] = lines.pop("hang.nvmlDeviceGetName")
        async with asyncio.timeout(LIMIT_S):
            await read(node)


async def test_process_ends_while_calls_hang(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.hang()
        program = f"""
import asyncio, pathlib
from agent.errors import DriverUnavailableError, PartitioningError
from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock
async def main():
    driver = NvmlDriver(SystemClock(), library=pathlib.Path({str(node.nvml.library)!r}), read_s=0.1)
    try:
        await driver.read()
    except DriverUnavailableError as hangs:
        print(hangs.reason.value)
    print(await driver.wait_for_events(0.2))
asyncio.run(main())
"""
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (0, "DriverHangs\n()\n")


async def test_looks_and_events_at_once_under_load(tmp_path: Path) -> None:
    devices = [a_device(number) for number in range(4)]
    async with nvml_node(tmp_path, *devices) as node:
        await node.listen()
        heard: set[int] = set()

        async def hear() -> None:
            while len(heard) < 100:
                heard.update(event.code for event in await node.driver.wait_for_events(1.0))

        async def snapshot() -> None:
            while len(heard) < 100:
                assert len((await node.driver.read()).devices) == 4

        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            group.create_task(hear())
            group.create_task(snapshot())
            group.create_task(snapshot())
            for code in range(1000, 1100):
                await asyncio.to_thread(node.nvml.emit_xid, devices[code % 4].uuid, code)

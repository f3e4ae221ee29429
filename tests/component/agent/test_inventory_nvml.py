"""The inventory over NVML's ABI, in real time: the whole way from the library to what is published."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.errors import DriverUnavailableError
from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock
from telemetry.conditions import AgentDegraded
from tests.component.agent.inventory_node import InventoryNode
from tests.support import fake_driver as driver_double
from tests.support.nvml.library import FakeNvml, NoCompilerError, a_device
from tests.support.polling import until

FIRST, SECOND, THIRD = "0000:10:00.0", "0000:11:00.0", "0000:12:00.0"
UUIDS = [f"GPU-00000000-0000-0000-0000-{number:012d}" for number in range(3)]


@dataclass
class NvmlInventory:
    node: InventoryNode
    nvml: FakeNvml

    @property
    def uuids(self) -> dict[str, str]:
        return {at: item.get("uuid", "") for at, item in self.node.published().items()}

    @property
    def reason(self) -> AgentDegraded:
        return self.node.problems.summary().reason

    async def publishes(self, expected: dict[str, str]) -> None:
        await until(lambda: self.uuids == expected)


@pytest.fixture
async def opened(folder: Path) -> AsyncIterator[NvmlInventory]:
    try:
        nvml = FakeNvml(folder / "nvml", a_device(0), a_device(1))
    except NoCompilerError as missing:
        pytest.skip(f"the double of NVML's library cannot be made: {missing}")
    clock = SystemClock()
    # They are asked for device files and functions only.
    devices = [
        driver_double.a_device(UUIDS[number], address=at, minor=number)
        for number, at in enumerate((FIRST, SECOND))
    ]
    node = InventoryNode(
        folder / "node",
        *devices,
        clock=clock,
        asked=lambda made: NvmlDriver(
            clock,
            library=nvml.library,
            bus=made.bound,
            read_s=0.5,
            retry_s=0.5,
        ),
    )
    async with node.running():
        found = NvmlInventory(node, nvml)
        await found.publishes({FIRST: UUIDS[0], SECOND: UUIDS[1]})
        try:
            yield found
        finally:
            nvml.unhang()
            assert isinstance(node.asked, NvmlDriver)
            with contextlib.suppress(DriverUnavailableError):
                await node.asked.close()


async def test_facts_from_nvml_are_published_and_in_the_files(opened: NvmlInventory):
    device = opened.node.published()[SECOND]
    assert (device["product"], device["memory.mib"]) == ("NVIDIA H100 80GB HBM3", "81559")
    assert (device["power.limit.watts"], device["power.max.watts"]) == ("650", "700")
    assert (device["mig.capable"], device["mig.mode"], device["mig.instances"]) == (
        "true",
        "Disabled",
        "[]",
    )
    assert [item["name"] for item in opened.node.files.cdi()["devices"]] == UUIDS[:2]


async def test_a_device_that_is_plugged_in_is_found(opened: NvmlInventory):
    opened.node.files.make_device("nvidia2")
    opened.nvml.plug(a_device(2))
    opened.node.files.add_function(THIRD)
    await opened.publishes(dict(zip((FIRST, SECOND, THIRD), UUIDS, strict=True)))


async def test_a_driver_that_is_unloaded_and_loaded_again_is_noticed(opened: NvmlInventory):
    link = opened.node.files.functions / FIRST / "driver"
    target = link.readlink()
    link.unlink()
    opened.nvml.unload_driver()
    opened.nvml.restart_driver()
    opened.nvml.unload_driver()
    async with asyncio.timeout(10):
        await opened.publishes({FIRST: "", SECOND: ""})
    assert opened.reason is AgentDegraded.DRIVER_NOT_LOADED
    opened.nvml.restart_driver("575.1")
    link.symlink_to(target)
    await opened.publishes({FIRST: UUIDS[0], SECOND: UUIDS[1]})
    await until(lambda: opened.reason is AgentDegraded.AS_EXPECTED)


async def test_a_driver_that_hangs_is_a_problem_and_its_facts_stay(opened: NvmlInventory):
    opened.nvml.hang()
    opened.node.inventory.trigger()
    await until(lambda: opened.reason is AgentDegraded.DRIVER_HANGS)
    opened.node.files.add_function(THIRD)
    await opened.publishes({FIRST: UUIDS[0], SECOND: UUIDS[1], THIRD: ""})
    opened.nvml.unhang()
    await until(lambda: opened.reason is AgentDegraded.AS_EXPECTED)


async def test_an_xid_is_in_the_file_within_a_second(opened: NvmlInventory):
    await until(lambda: opened.nvml.listening() > 0)
    opened.nvml.emit_xid(UUIDS[1], 79)
    await until(lambda: not opened.node.files.devices().devices[1].is_healthy, within_s=1.0)
    await until(lambda: opened.node.published()[SECOND].get("health.reason") == "Xid79")


async def test_the_action_of_the_driver_is_published_and_ends_the_fault(opened: NvmlInventory):
    opened.nvml.ask_for(UUIDS[1], 0)
    opened.node.inventory.trigger()
    await until(lambda: opened.node.published()[SECOND].get("recovery.action") == "None")
    await until(lambda: opened.nvml.listening() > 0)
    opened.nvml.ask_for(UUIDS[1], 1)
    opened.nvml.emit_xid(UUIDS[1], 119)
    await until(lambda: not opened.node.files.devices().devices[1].is_healthy, within_s=1.0)
    await until(lambda: opened.node.published()[SECOND].get("recovery.action") == "GPUReset")
    opened.nvml.reset(UUIDS[1])
    opened.node.inventory.trigger()
    await until(lambda: opened.node.files.devices().devices[1].is_healthy)
    assert "recovery.action" not in opened.node.published()[FIRST]


async def test_a_lost_device_keeps_its_name_and_does_not_spoil_the_other(opened: NvmlInventory):
    opened.nvml.lose(UUIDS[1])
    opened.node.inventory.trigger()
    await until(lambda: opened.node.published()[SECOND].get("health") == "Lost")
    assert opened.uuids == {FIRST: UUIDS[0], SECOND: UUIDS[1]}
    assert opened.node.published()[FIRST]["health"] == "Healthy"

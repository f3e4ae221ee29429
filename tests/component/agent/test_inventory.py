"""The devices of a node in virtual time: what comes and goes is noticed, and what does not costs nothing."""

import asyncio
from pathlib import Path

import pytest

from telemetry.conditions import AgentDegraded
from tests.component.agent.inventory_node import FIRST, SECOND, InventoryNode, two_devices
from tests.support.agent_api import FEATURES
from tests.support.fake_driver import a_device

pytestmark = pytest.mark.looptime


@pytest.fixture
def node(tmp_path: Path) -> InventoryNode:
    return InventoryNode(tmp_path, *two_devices())


async def test_devices_are_in_the_files_and_published(node: InventoryNode):
    async with node.running():
        first = node.published()[FIRST]
        assert (first["uuid"], first["pci.device"], first["health"]) == ("GPU-1", "2335", "Healthy")
        file = node.files.devices()
        assert [(device.uuid, device.is_healthy) for device in file.devices] == [
            ("GPU-1", True),
            ("GPU-2", True),
        ]
        assert file.devices[0].nodes == [str(node.files.paths.dev / "nvidia0")]
        assert [mount.container_path for mount in file.shared.mounts] == [
            "/usr/local/nvidia/lib64/libcuda.so.1"
        ]
        assert file.shared.mounts[0].host_path == "/usr/lib64/libcuda.so.1"
        assert [device["name"] for device in node.files.cdi()["devices"]] == ["GPU-1", "GPU-2"]
        await asyncio.sleep(3)
        assert node.condition_reported() == "AsExpected"


async def test_a_quiet_hour_costs_heartbeats_and_no_other_write(node: InventoryNode):
    async with node.running():
        await asyncio.sleep(3)
        node.api.writes.clear()
        before, reads = node.files.versions(), node.driver.reads
        await asyncio.sleep(3600)
        assert node.files.versions() == before
    assert set(node.api.writes) == {("json_patch", FEATURES)}
    assert node.api.count("json_patch", FEATURES) == 60
    assert node.driver.reads - reads in range(350, 362)


async def test_a_restart_writes_nothing_but_a_heartbeat(node: InventoryNode):
    node.driver.device("GPU-2").is_lost = True
    async with node.running():
        await asyncio.sleep(5)
    before = node.files.versions()
    node.begin()
    node.api.writes.clear()
    async with node.running():
        await asyncio.sleep(5)
    assert node.files.versions() == before
    assert node.api.writes == [("json_patch", FEATURES)]


async def test_a_device_that_is_plugged_in_is_published_within_two_seconds(node: InventoryNode):
    third = "0000:19:00.0"
    async with node.running():
        await asyncio.sleep(4.6)
        node.files.add_function(third)
        node.files.make_device("nvidia2")
        node.driver.plug(a_device("GPU-3", address=third, minor=2))
        await asyncio.sleep(2)
        assert node.published()[third]["uuid"] == "GPU-3"
        assert [device["name"] for device in node.files.cdi()["devices"]][-1] == "GPU-3"


async def test_a_device_that_is_taken_out_is_gone_within_three_seconds(node: InventoryNode):
    async with node.running():
        await asyncio.sleep(4.6)
        node.files.remove_function(SECOND)
        node.driver.unplug("GPU-2")
        await asyncio.sleep(3)
        assert list(node.published()) == [FIRST]
        assert [device.uuid for device in node.files.devices().devices] == ["GPU-1"]


async def test_a_device_that_cannot_be_read_for_a_moment_is_not_gone(node: InventoryNode):
    async with node.running():
        node.api.writes.clear()
        for _ in range(5):
            vendor = node.files.functions / SECOND / "vendor"
            vendor.rename(vendor.with_name("away"))
            await asyncio.sleep(1)
            vendor.with_name("away").rename(vendor)
            await asyncio.sleep(2)
        assert list(node.published()) == [FIRST, SECOND]
    assert ("apply", FEATURES) not in node.api.writes


async def test_a_device_that_the_driver_shows_no_more_is_lost(node: InventoryNode):
    async with node.running():
        node.driver.device("GPU-2").is_listed = False
        await asyncio.sleep(11)
        assert node.published()[SECOND]["health"] == "Lost"
        assert node.published()[SECOND]["uuid"] == "GPU-2"
        device = node.files.devices().devices[1]
        assert (device.uuid, device.is_healthy) == ("GPU-2", False)


async def test_an_agent_that_starts_when_a_device_is_not_shown_any_more_knows_it_still(
    node: InventoryNode,
):
    async with node.running():
        pass
    node.driver.device("GPU-2").is_listed = False
    node.begin()
    async with node.running():
        assert node.published()[SECOND]["health"] == "Lost"
        assert node.published()[SECOND]["uuid"] == "GPU-2"


async def test_another_device_in_a_slot_is_not_taken_for_the_one_that_was_there(
    node: InventoryNode,
):
    async with node.running():
        node.driver.go_away(AgentDegraded.DRIVER_NOT_LOADED)
        node.files.remove_function(SECOND)
        await asyncio.sleep(4)
        node.files.add_function(SECOND)
        await asyncio.sleep(4)
        node.driver.device("GPU-2").is_listed = False
        node.driver.come_back()
        await asyncio.sleep(4)
        assert "uuid" not in node.published()[SECOND]


async def test_a_device_that_is_given_to_another_driver_is_neither_ours_nor_lost(
    node: InventoryNode,
):
    async with node.running():
        link = node.files.functions / SECOND / "driver"
        link.unlink()
        link.symlink_to("/sys/bus/pci/drivers/vfio-pci")
        node.driver.device("GPU-2").is_listed = False
        await asyncio.sleep(3)
        assert "uuid" not in node.published()[SECOND]
        assert "health" not in node.published()[SECOND]
        assert node.watch.health("GPU-2").is_healthy
        assert [item.uuid for item in node.files.devices().devices] == ["GPU-1"]

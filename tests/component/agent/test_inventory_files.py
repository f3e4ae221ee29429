"""The files that the inventory writes: first, whole, only where something changed, and again where they went."""

import asyncio
import os
from pathlib import Path

import pytest

from agent.driver.libraries import DriverFiles, find_driver_files
from agent.files import replace_file
from agent.inventory.node_devices import PublishedFeatures
from tests.component.agent.inventory_node import FIRST, SECOND, InventoryNode, two_devices
from tests.support.agent_api import INVENTORIES
from tests.support.fake_driver import GpuInstance, a_device

pytestmark = pytest.mark.looptime


@pytest.fixture
def node(tmp_path: Path) -> InventoryNode:
    return InventoryNode(tmp_path, *two_devices())


async def test_the_files_come_before_what_is_published(tmp_path: Path):
    names: list[set[str]] = []

    class Publisher:
        def publish(self, published: PublishedFeatures) -> None:
            assert published.devices
            names.append({device["name"] for device in tested.files.cdi()["devices"]})
            assert len(tested.files.devices().devices) == len(published.devices)

    tested = InventoryNode(tmp_path, *two_devices(), publisher=Publisher())
    async with tested.running():
        assert names == [{"GPU-1", "GPU-2"}]


@pytest.mark.parametrize("what", ["cards", "cdi"])
async def test_a_file_that_cannot_be_written_is_a_problem_and_the_last_one_stays(
    tmp_path: Path, what
):
    is_full = False

    def replace_or_fail(path: Path, content: bytes) -> bool:
        if is_full and path == broken:
            raise OSError(28, "No space left on device")
        return replace_file(path, content)

    node = InventoryNode(tmp_path, *two_devices(), replace=replace_or_fail)
    broken = node.files.devices_path if what == "cards" else node.files.cdi_path
    async with node.running():
        await asyncio.sleep(3)
        before = broken.read_bytes()
        is_full = True
        node.driver.device("GPU-2").is_mig_enabled = True
        device = node.driver.device("GPU-2")
        device.instances = [GpuInstance(1, "1g.10gb", "MIG-1")]
        await asyncio.sleep(15)
        assert broken.read_bytes() == before
        assert node.condition_reported() == "NotPublished"
        assert str(broken) in node.problems.summary().text
        # The rest goes on.
        assert "MIG-1" in node.published()[SECOND]["mig.instances"]
        is_full = False
        await asyncio.sleep(15)
        assert b"MIG-1" in broken.read_bytes()
        assert node.condition_reported() == "AsExpected"


async def test_a_removed_file_comes_back(node: InventoryNode):
    async with node.running():
        node.files.devices_path.unlink()
        node.files.cdi_path.write_text("{}")
        await asyncio.sleep(11)
        assert len(node.files.devices().devices) == 2
        assert len(node.files.cdi()["devices"]) == 2


async def test_an_invalid_devices_file_is_replaced(node: InventoryNode):
    node.files.devices_path.parent.mkdir()
    node.files.devices_path.write_text('{"version": "v9"}')
    async with node.running():
        assert len(node.files.devices().devices) == 2


async def test_a_missing_device_file_is_a_problem_and_its_device_is_not_in_the_specification(
    node: InventoryNode,
):
    (node.files.paths.dev / "nvidia1").unlink()
    async with node.running():
        await asyncio.sleep(3)
        assert [device["name"] for device in node.files.cdi()["devices"]] == ["GPU-1"]
        assert node.condition_reported() == "NotPublished"
        assert "nvidia1 of device GPU-2" in node.problems.summary().text
        node.files.make_device("nvidia1")
        await asyncio.sleep(13)
        assert len(node.files.cdi()["devices"]) == 2
        assert node.condition_reported() == "AsExpected"


async def test_a_node_without_a_device_any_more_has_no_specification(tmp_path: Path):
    node = InventoryNode(tmp_path, a_device("GPU-1", address=FIRST))
    async with node.running():
        assert node.files.cdi_path.exists()
        node.files.remove_function(FIRST)
        node.driver.unplug("GPU-1")
        await asyncio.sleep(3)
        assert not node.files.cdi_path.exists()
        assert node.files.devices().devices == []
        assert node.published() == {}
    assert node.api.count("apply", INVENTORIES) <= 1


async def test_libraries_are_looked_for_where_a_directory_of_theirs_changed(tmp_path: Path):
    reads = []

    def counted(root: Path, first: str) -> DriverFiles:
        reads.append(root)
        return find_driver_files(root, first)

    node = InventoryNode(tmp_path, *two_devices(), find=counted)
    async with node.running():
        await asyncio.sleep(60)
        assert len(reads) == 1
        libraries = node.files.paths.driver_root / "usr/lib64"
        (libraries / "libnvidia-ml.so.1").write_text("a library")
        # The clock of a file system is coarse.
        os.utime(libraries, ns=(1, 1))
        await asyncio.sleep(11)
        assert len(reads) == 2
        mounts = node.files.devices().shared.mounts
        assert "libnvidia-ml.so.1" in mounts[-1].container_path
        assert any(
            "libnvidia-ml" in str(mount) for mount in node.files.cdi()["containerEdits"]["mounts"]
        )

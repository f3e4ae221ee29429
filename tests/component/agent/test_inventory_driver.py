"""The inventory and its driver: one that is missing, hangs, comes back, reports faults and partitions devices."""

import asyncio
from pathlib import Path

import pytest

from agent.driver.port import DriverEvent, EventKind
from api.foreign.nodefeature import HEARTBEAT_ANNOTATION
from inventory.health.recovery import RecoveryAction
from telemetry.conditions import AgentDegraded
from tests.component.agent.inventory_node import FEATURE, FIRST, SECOND, InventoryNode, two_devices
from tests.support.fake_driver import GpuInstance, a_device

pytestmark = pytest.mark.looptime


@pytest.fixture
def node(tmp_path: Path) -> InventoryNode:
    return InventoryNode(tmp_path, *two_devices())


@pytest.mark.parametrize("reason", [AgentDegraded.DRIVER_MISSING, AgentDegraded.DRIVER_NOT_LOADED])
async def test_without_its_driver_the_pci_facts_are_published_and_the_files_stay(
    node: InventoryNode, reason
):
    async with node.running():
        await asyncio.sleep(3)
        before = node.files.versions()
        node.driver.go_away(reason)
        # The kernel's driver is unbound when it is unloaded.
        (node.files.functions / FIRST / "driver").unlink()
        await asyncio.sleep(2)
        assert node.problems.summary().reason is reason
        assert set(node.published()[SECOND]) == {
            "pci.address",
            "pci.vendor",
            "pci.device",
            "pci.class",
            "numa.node",
        }
        assert node.files.versions() == before
        await asyncio.sleep(5)
        assert node.condition_reported() == reason.value
        node.driver.come_back()
        await asyncio.sleep(2.5)
        assert node.published()[SECOND]["uuid"] == "GPU-2"
        await asyncio.sleep(3)
        assert node.condition_reported() == "AsExpected"


async def test_a_device_of_a_hyper_v_guest_is_one_though_nvml_writes_a_longer_domain(
    tmp_path: Path,
):
    node = InventoryNode(
        tmp_path, a_device("GPU-1", address="3f8cfdd:00:00.0", minor=0), is_on_bus=False
    )
    node.files.add_function("cfdd:00:00.0")
    async with node.running():
        await asyncio.sleep(3)
        assert node.published().keys() == {"cfdd:00:00.0"}
        assert node.published()["cfdd:00:00.0"]["uuid"] == "GPU-1"
        assert node.published()["cfdd:00:00.0"]["health"] == "Healthy"


@pytest.mark.parametrize("reason", [AgentDegraded.DRIVER_HANGS, AgentDegraded.DRIVER_FAILS])
async def test_a_driver_that_hangs_stops_neither_bus_nor_health_nor_heartbeat(
    node: InventoryNode, reason
):
    third = "0000:19:00.0"
    async with node.running():
        await asyncio.sleep(3)
        node.driver.go_away(reason, after_s=5.0)
        await asyncio.sleep(20)
        assert node.problems.summary().reason is reason
        # What was known stays, with health.
        assert node.published()[FIRST]["uuid"] == "GPU-1"
        node.files.add_function(third)
        await asyncio.sleep(13)
        assert third in node.published()
        node.watch.take([DriverEvent(uuid="GPU-2", kind=EventKind.XID, code=79)])
        await asyncio.sleep(0.2)
        assert node.published()[SECOND]["health.reason"] == "Xid79"
        assert not node.files.devices().devices[1].is_healthy
        # A device that goes is not kept.
        node.files.remove_function(FIRST)
        await asyncio.sleep(13)
        assert FIRST not in node.published()
        heartbeat = node.api.feature(FEATURE)["metadata"]["annotations"][HEARTBEAT_ANNOTATION]
        await asyncio.sleep(61)
        assert (
            node.api.feature(FEATURE)["metadata"]["annotations"][HEARTBEAT_ANNOTATION] > heartbeat
        )


@pytest.mark.parametrize("is_on_bus", [True, False])
async def test_a_driver_that_never_answered_leaves_the_bus(tmp_path: Path, is_on_bus):
    node = InventoryNode(tmp_path, *two_devices(), is_on_bus=is_on_bus)
    (node.files.functions).mkdir(parents=True, exist_ok=True)
    node.driver.go_away(AgentDegraded.DRIVER_MISSING)
    async with node.running():
        await asyncio.sleep(5)
        assert list(node.published()) == ([FIRST, SECOND] if is_on_bus else [])
        assert node.api.has_feature(FEATURE)
        assert not node.files.devices_path.exists()


async def test_nothing_is_published_before_the_driver_was_asked_once(node: InventoryNode):
    node.driver.go_away(AgentDegraded.DRIVER_HANGS, after_s=5.0)
    async with node.running():
        node.inventory.health_changed()
        await asyncio.sleep(2)
        # A driver that answers late would else cost two writes, and facts of its devices for a moment.
        assert not node.api.has_feature(FEATURE)
        await asyncio.sleep(3)
        assert list(node.published()) == [FIRST, SECOND]


@pytest.mark.parametrize("name", ["dev/nvidiactl", "proc/driver/nvidia/version"])
async def test_the_driver_is_asked_when_the_kernel_loads_or_unloads_it(
    node: InventoryNode, tmp_path: Path, name
):
    path = tmp_path / name
    async with node.running():
        await asyncio.sleep(3.5)
        before = node.driver.reads
        if path.is_symlink():
            path.unlink()
        else:
            path.parent.mkdir(parents=True)
            path.touch()
        await asyncio.sleep(1.5)
        assert node.driver.reads == before + 1


async def test_a_fault_is_in_the_file_at_once_and_published(node: InventoryNode):
    async with node.running():
        node.driver.emit_xid("GPU-2", 79)
        await asyncio.sleep(0.01)
        device = node.files.devices().devices[1]
        assert (device.is_healthy, device.reason) == (False, "Xid79")
        await asyncio.sleep(0.5)
        assert node.published()[SECOND]["health.reason"] == "Xid79"


async def test_a_fault_outlives_a_restart_of_the_agent(node: InventoryNode):
    async with node.running():
        node.driver.emit_xid("GPU-2", 79)
        await asyncio.sleep(1)
    node.begin()
    async with node.running():
        assert node.published()[SECOND]["health.reason"] == "Xid79"
        assert not node.files.devices().devices[1].is_healthy


async def test_an_action_that_cannot_be_read_after_a_restart_of_the_agent_is_not_none(
    node: InventoryNode,
):
    node.driver.device("GPU-2").recovery_action = RecoveryAction.NONE
    async with node.running():
        assert node.published()[SECOND]["health"] == "Healthy"
    node.driver.device("GPU-2").recovery_action = None
    node.begin()
    async with node.running():
        assert node.published()[SECOND]["recovery.action"] == "ActionUnknown"
        assert not node.files.devices().devices[1].is_healthy
        assert node.published()[FIRST]["health"] == "Healthy"


async def test_many_pokes_are_few_looks(node: InventoryNode):
    async with node.running():
        before = node.driver.reads
        for _ in range(100):
            node.inventory.trigger()
            await asyncio.sleep(0.01)
        assert node.driver.reads - before <= 7


async def test_a_partitioned_device_is_published_when_the_inventory_is_triggered(
    node: InventoryNode,
):
    async with node.running():
        await asyncio.sleep(3)
        device = node.driver.device("GPU-1")
        device.is_mig_enabled = True
        device.instances = [GpuInstance(1, "1g.10gb", "MIG-1"), GpuInstance(2, "1g.10gb")]
        node.inventory.trigger()
        await asyncio.sleep(0.5)
        assert node.published()[FIRST]["mig.instances"] == (
            '[{"profile":"1g.10gb","uuid":"MIG-1"}]'
        )
        names = [item["name"] for item in node.files.cdi()["devices"]]
        assert names == ["GPU-1", "MIG-1", "GPU-2"]


@pytest.mark.parametrize("has_bus", [True, False], ids=["no device on the bus", "no bus"])
async def test_a_bus_that_cannot_be_seen_is_no_empty_one(tmp_path: Path, has_bus):
    node = InventoryNode(tmp_path, *two_devices(), is_on_bus=False)
    if has_bus:
        node.files.functions.mkdir(parents=True)
    async with node.running():
        assert node.published()[FIRST]["uuid"] == "GPU-1"
        node.driver.device("GPU-2").is_listed = False
        await asyncio.sleep(11)
        assert node.published()[SECOND]["health"] == "Lost"
        node.driver.go_away(AgentDegraded.DRIVER_MISSING)
        await asyncio.sleep(15)
        # Nobody can say who is there: what was said stays.
        assert list(node.published()) == [FIRST, SECOND]

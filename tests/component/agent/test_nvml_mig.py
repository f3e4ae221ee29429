"""Partitioning devices through NVML: what is made is there for the next process, and no step is done by halves for good."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.driver.port import DriverInstance
from agent.errors import PartitioningError
from tests.component.agent.nvml_node import NvmlNode, nvml_node
from tests.support.nvml.library import a_device

DEVICE = a_device(0, is_mig_enabled=True)
WHOLE = a_device(0)
UUID = DEVICE.uuid
IN_USE, NO_ROOM, UNKNOWN = 19, 23, 999


async def instances(node: NvmlNode) -> tuple[DriverInstance, ...]:
    return (await node.device(UUID)).instances


async def test_mode_is_set_and_taken_back(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, WHOLE) as node:
        assert await node.driver.set_mig(UUID, is_enabled=True)
        assert (await node.device(UUID)).is_mig_enabled
        assert await node.driver.set_mig(UUID, is_enabled=True)
        assert await node.driver.set_mig(UUID, is_enabled=False)
        assert not (await node.device(UUID)).is_mig_enabled


async def test_mode_that_takes_a_reset_is_not_in_effect(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, a_device(0, mig_needs_reset=True)) as node:
        assert not await node.driver.set_mig(UUID, is_enabled=True)
        found = await node.device(UUID)
        assert (found.is_mig_enabled, found.is_mig_pending) == (False, True)
        node.nvml.reset(UUID)
        assert await node.driver.set_mig(UUID, is_enabled=True)


async def test_mode_of_a_device_in_use_is_refused(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, WHOLE) as node:
        node.nvml.run_process(UUID, 7)
        with pytest.raises(PartitioningError, match=f"enabling MIG on {UUID} .*In use"):
            await node.driver.set_mig(UUID, is_enabled=True)


async def test_device_without_mig_is_refused(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, a_device(0, is_mig_capable=False)) as node:
        with pytest.raises(PartitioningError, match="Not Supported"):
            await node.driver.set_mig(UUID, is_enabled=True)


async def test_the_device_is_closed_while_its_mode_changes(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, WHOLE, a_device(1)) as node:
        await node.driver.read()
        await node.listen()
        # A device that comes shows that NVML was initialised again, which it is when no process has it open.
        node.nvml.plug(a_device(2))
        await node.driver.set_mig(UUID, is_enabled=True)
        assert len((await node.driver.read()).devices) == 3
        await node.listen()
        node.nvml.emit_xid(a_device(2).uuid, 79)
        assert (await node.event()).uuid == a_device(2).uuid


async def test_instances_fill_a_device_and_no_more(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        for _ in range(7):
            await node.driver.create_instance(UUID, "1g.10gb")
        found = await instances(node)
        assert [item.profile for item in found] == ["1g.10gb"] * 7
        assert len({item.uuid for item in found}) == 7
        assert all(item.uuid.startswith("MIG-") and item.compute_instance == 0 for item in found)
        with pytest.raises(PartitioningError, match=f"creating 1g.10gb on {UUID} was refused"):
            await node.driver.create_instance(UUID, "1g.10gb")
        await node.driver.destroy_instance(UUID, found[3].gpu_instance)
        assert await instances(node) == found[:3] + found[4:]


@pytest.mark.parametrize("profile", ["1g.10gb+me", "2g.20gb", "3g.40gb", "7g.80gb"])
async def test_compute_instance_has_all_of_its_instance(tmp_path: Path, profile: str) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        await node.driver.create_instance(UUID, profile)
        (made,) = await instances(node)
        assert (made.profile, made.compute_instance) == (profile, 0)


async def test_unknown_profile_is_refused(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        with pytest.raises(PartitioningError, match="no such profile"):
            await node.driver.create_instance(UUID, "5g.50gb")


async def test_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        node.nvml.lose(UUID)
        for uuid in (UUID, "GPU-other"):
            with pytest.raises(PartitioningError, match=f"device {uuid} is lost or missing"):
                await node.driver.create_instance(uuid, "1g.10gb")


async def test_instance_without_its_compute_instance_is_undone(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        node.nvml.fail("nvmlGpuInstanceCreateComputeInstance", NO_ROOM)
        with pytest.raises(PartitioningError, match="compute instance"):
            await node.driver.create_instance(UUID, "1g.10gb")
        assert await instances(node) == ()


async def test_agent_killed_between_the_two_steps_leaves_an_instance_that_can_be_completed(
    tmp_path: Path,
) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        node.nvml.kill_at("nvmlGpuInstanceCreateComputeInstance")
        assert (
            await run_agent(node, f"driver.create_instance({UUID!r}, '2g.20gb')") == -signal.SIGKILL
        )
        assert await instances(node) == (DriverInstance(gpu_instance=3, profile="2g.20gb"),)
        await node.driver.complete_instance(UUID, 3)
        (whole,) = await instances(node)
        assert whole.uuid.startswith("MIG-")
        await node.driver.complete_instance(UUID, 3)
        assert await instances(node) == (whole,)


async def test_instances_of_an_agent_before_are_there(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        assert await run_agent(node, f"driver.create_instance({UUID!r}, '3g.40gb')") == 0
        assert [instance.profile for instance in await instances(node)] == ["3g.40gb"]


async def run_agent(node: NvmlNode, call: str) -> int:
    program = f"""
import asyncio, pathlib
from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock
async def main():
    driver = NvmlDriver(SystemClock(), library=pathlib.Path({str(node.nvml.library)!r}))
    await {call}
asyncio.run(main())
"""
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], check=False, timeout=30
    )
    return run.returncode


async def test_instance_in_use_stays_whole(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        await node.driver.create_instance(UUID, "3g.40gb")
        before = await instances(node)
        node.nvml.run_process(UUID, 7, gpu_instance=1)
        with pytest.raises(PartitioningError, match=f"{before[0].uuid} is used by 1 processes"):
            await node.driver.destroy_instance(UUID, 1)
        assert await instances(node) == before


async def test_instance_that_nvml_knows_in_use_stays_whole(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        await node.driver.create_instance(UUID, "3g.40gb")
        before = await instances(node)
        node.nvml.run_process(UUID, 7, gpu_instance=1)
        # In another PID namespace: not told, and in use all the same.
        for kind in ("Compute", "Graphics", "MPSCompute"):
            node.nvml.fail(f"nvmlDeviceGet{kind}RunningProcesses_v3", 6, times=-1)
        with pytest.raises(PartitioningError, match="In use"):
            await node.driver.destroy_instance(UUID, 1)
        assert await instances(node) == before


async def test_destroying_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        await node.driver.create_instance(UUID, "3g.40gb")
        node.nvml.fail("nvmlGpuInstanceDestroy", IN_USE)
        with pytest.raises(PartitioningError):
            await node.driver.destroy_instance(UUID, 1)
        assert await instances(node) == (DriverInstance(gpu_instance=1, profile="3g.40gb"),)
        await node.driver.destroy_instance(UUID, 1)
        assert await instances(node) == ()
        await node.driver.destroy_instance(UUID, 1)


async def test_several_compute_instances_are_destroyed_together(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        node.nvml.set(UUID, **{"gi.1": "2 0", "ci.1.0": "1 MIG-a", "ci.1.1": "2 MIG-b"})
        await node.driver.destroy_instance(UUID, 1)
        assert await instances(node) == ()


async def test_partitioning_starts_again_after_the_driver_was_loaded_again(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        await node.listen()
        await node.driver.create_instance(UUID, "3g.40gb")
        node.nvml.restart_driver()
        await node.driver.create_instance(UUID, "1g.10gb")
        assert node.nvml.instances(UUID) == ["1g.10gb"]


async def test_step_with_an_unknown_result_is_not_repeated(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, DEVICE) as node:
        node.nvml.fail("nvmlDeviceCreateGpuInstance", UNKNOWN)
        with pytest.raises(PartitioningError, match="Unknown"):
            await node.driver.create_instance(UUID, "1g.10gb")
        assert node.nvml.instances(UUID) == []

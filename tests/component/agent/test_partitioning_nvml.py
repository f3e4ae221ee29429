"""Partitioning devices through NVML's own ABI; threads are real, and so is the time."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.kinds.gpupool import AllocationMode, EffectiveAllocation, MIGShare
from telemetry.conditions import AgentDegraded
from tests.component.agent.nvml_node import NvmlNode, nvml_node
from tests.component.agent.partitioning_node import SEVEN, PartitioningNode, a_pool
from tests.support.nvml.library import a_device
from tests.support.polling import until

UUID = a_device(0).uuid
ROOT = Path(__file__).parents[3]
IN_USE = 19
"""NVML_ERROR_IN_USE."""


@asynccontextmanager
async def partitioning_through_nvml(
    directory: Path, *, profile: str = "1g.10gb", read_s: float = 5.0, **changes: Any
) -> AsyncIterator[tuple[NvmlNode, PartitioningNode]]:
    async with nvml_node(directory, a_device(0, **changes), read_s=read_s) as nvml:
        node = PartitioningNode(driver=nvml.driver, profile=profile)
        node.add_device(1, uuid=UUID)
        yield nvml, node


async def test_a_device_is_partitioned_repartitioned_and_whole_again(tmp_path: Path):
    async with partitioning_through_nvml(tmp_path) as (nvml, node):
        for profile, expected in (("1g.10gb", SEVEN), ("3g.40gb", ["3g.40gb"] * 2), ("", [])):
            node.pools_by_name["a"] = a_pool("a", profile)
            await node.partitioner.work()
            assert nvml.nvml.instances(UUID) == expected
            device = await nvml.device(UUID)
            assert device.is_mig_enabled == bool(profile)
            assert all(instance.uuid for instance in device.instances)
    assert [reason for _, reason in node.reasons()] == ["GPUPartitioned"] * 3


@pytest.mark.parametrize(
    ("there", "kept"),
    [
        pytest.param({}, None, id="empty"),
        pytest.param({"gi.7": "0 0", "ci.7.0": "1 MIG-kept"}, "MIG-kept", id="one in its place"),
        pytest.param(
            {"gi.7": "0 0", "ci.7.0": "1 MIG-a", "gi.8": "0 4", "ci.8.0": "1 MIG-b"},
            "MIG-a",
            id="one in the way",
        ),
    ],
)
async def test_instances_of_several_profiles_lie_where_all_of_them_fit(
    tmp_path: Path, there: dict[str, str], kept: str | None
):
    async with partitioning_through_nvml(tmp_path, is_mig_enabled=bool(there)) as (nvml, node):
        mixed = (MIGShare(profile="1g.10gb"), MIGShare(profile="3g.40gb", count=1))
        pool = a_pool("a")
        allocation = EffectiveAllocation(mode=AllocationMode.MIG, mig=list(mixed))
        status = msgspec.structs.replace(pool.status, allocation=allocation)
        node.pools_by_name["a"] = msgspec.structs.replace(pool, status=status)
        nvml.nvml.set(UUID, **there)
        await node.partitioner.work()
        device = await nvml.device(UUID)
        assert sorted(nvml.nvml.instances(UUID)) == ["1g.10gb"] * 4 + ["3g.40gb"]
    assert kept is None or kept in {instance.uuid for instance in device.instances}
    assert [reason for _, reason in node.reasons()] == ["GPUPartitioned"]


async def test_an_instance_of_the_right_profile_is_not_touched(tmp_path: Path):
    async with partitioning_through_nvml(tmp_path, is_mig_enabled=True) as (nvml, node):
        nvml.nvml.set(
            UUID,
            **{"gi.1": "2 0", "ci.1.0": "3 MIG-other", "gi.7": "0 4", "ci.7.0": "1 MIG-right"},
        )
        await node.partitioner.work()
        device = await nvml.device(UUID)
    assert [instance.profile for instance in device.instances] == SEVEN
    assert ("MIG-right", 7) in {
        (instance.uuid, instance.gpu_instance) for instance in device.instances
    }


async def test_an_instance_without_its_compute_instance_is_completed(tmp_path: Path):
    """As an agent leaves it that is killed between the two."""
    async with partitioning_through_nvml(tmp_path, is_mig_enabled=True) as (nvml, node):
        nvml.nvml.set(UUID, **{"gi.7": "0 4"})
        await node.partitioner.work()
        device = await nvml.device(UUID)
    assert [instance.profile for instance in device.instances] == SEVEN
    assert 7 in {instance.gpu_instance for instance in device.instances}
    assert all(instance.uuid for instance in device.instances)


CUT_IN_A_PROCESS = """
import asyncio, sys
from pathlib import Path
from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock
from tests.component.agent.partitioning_node import PartitioningNode

async def main():
    node = PartitioningNode(driver=NvmlDriver(SystemClock(), library=Path(sys.argv[1])))
    node.add_device(1, uuid=sys.argv[2])
    await node.partitioner.work()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceSetMigMode",
        "nvmlDeviceCreateGpuInstance",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
    ],
)
async def test_an_agent_that_is_killed_in_a_call_goes_on_with_the_next_one(
    tmp_path: Path, function: str
):
    is_destroying = function.endswith("Destroy")
    async with partitioning_through_nvml(tmp_path, is_mig_enabled=is_destroying) as (nvml, node):
        if is_destroying:
            nvml.nvml.set(UUID, **{"gi.1": "2 0", "ci.1.0": "3 MIG-other"})
        nvml.nvml.kill_at(function)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CUT_IN_A_PROCESS, str(nvml.nvml.library), UUID, cwd=ROOT
        )
        assert await process.wait() == -signal.SIGKILL
        assert nvml.nvml.instances(UUID) != SEVEN
        await node.partitioner.work()
        device = await nvml.device(UUID)
    assert [instance.profile for instance in device.instances] == SEVEN
    assert all(instance.uuid for instance in device.instances)


async def test_a_process_on_an_instance_blocks_the_device(tmp_path: Path):
    async with partitioning_through_nvml(tmp_path, is_mig_enabled=True) as (nvml, node):
        nvml.nvml.set(UUID, **{"gi.1": "2 0", "ci.1.0": "3 MIG-other"})
        nvml.nvml.run_process(UUID, 100, gpu_instance=1)
        await node.partitioner.work()
        assert nvml.nvml.instances(UUID) == ["3g.40gb"]
        nvml.nvml.end_processes(UUID)
        node.restart()
        await node.partitioner.work()
        assert nvml.nvml.instances(UUID) == SEVEN


async def test_an_instance_that_the_driver_reports_in_use_stays(tmp_path: Path):
    """A process that began after everybody looked."""
    async with partitioning_through_nvml(tmp_path, is_mig_enabled=True) as (nvml, node):
        nvml.nvml.set(UUID, **{"gi.1": "2 0", "ci.1.0": "3 MIG-other"})
        nvml.nvml.fail("nvmlComputeInstanceDestroy", IN_USE, times=-1)
        await node.partitioner.work()
        assert (await nvml.device(UUID)).instances[0].uuid == "MIG-other"
        assert node.reasons() == [("n1-1", "GPUPartitioningHeldUp")]
        assert node.problems.summary().reason is AgentDegraded.PARTITIONING_BLOCKED
        nvml.nvml.heal()
        async with node.running():
            await until(lambda: nvml.nvml.instances(UUID) == SEVEN)


async def test_a_mode_that_takes_a_reset_is_waited_for(tmp_path: Path):
    async with partitioning_through_nvml(tmp_path, mig_needs_reset=True) as (nvml, node):
        await node.partitioner.work()
        assert (await nvml.device(UUID)).is_mig_pending is True
        assert "after a reset" in node.events[0][2]
        nvml.nvml.reset(UUID)
        node.restart()
        await node.partitioner.work()
        assert nvml.nvml.instances(UUID) == SEVEN


async def test_a_device_without_mig_is_reported(tmp_path: Path):
    async with partitioning_through_nvml(tmp_path, is_mig_capable=False) as (_, node):
        await node.partitioner.work()
    assert "does not support MIG" in node.events[0][2]


async def test_a_driver_that_hangs_and_comes_back_is_gone_on_with(tmp_path: Path):
    async with partitioning_through_nvml(tmp_path, read_s=0.2) as (nvml, node):
        nvml.nvml.hang("nvmlDeviceGetMigMode")
        async with node.running():
            await asyncio.sleep(1.0)
            assert nvml.nvml.instances(UUID) == []
            nvml.nvml.unhang()
            await until(lambda: nvml.nvml.instances(UUID) == SEVEN)

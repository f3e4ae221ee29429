"""Metrics read through NVML: what a driver supports, MIG instances, and a driver that lies or hangs."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from agent.context import AgentContext
from agent.device_metrics.page import page_of
from agent.driver.device_fields import DeviceField
from agent.driver.port import DriverEvent, EventKind
from agent.errors import DriverUnavailableError
from agent.kubelet.pod_processes import pods_of_processes
from agent.roles.inventory import InventoryRole
from agent.settings import AgentRole, AgentSettings
from http_edge.system_clock import SystemClock
from telemetry.conditions import AgentDegraded
from tests.component.agent.nvml_node import nvml_node
from tests.support.nvml.library import a_device
from tests.support.polling import LIMIT_S

if TYPE_CHECKING:
    from kube.client import KubeClient

FIRST, SECOND = a_device(0), a_device(1)
NOT_SUPPORTED = 3
METRICS = {
    "utilisation": 37,
    "memory_utilisation": 12,
    "used": 1024,
    "milliwatts": 411_250,
    "sm_clock": 1980,
    "memory_clock": 2619,
    "throttle": 4,
    "field.82": 51,
    "field.83": 123_456_789,
    "field.3": 1,
    "field.4": 2,
    "field.5": 3,
    "field.6": 4,
    "field.142": 5,
    "field.143": 6,
    "field.145": 1,
    "field.38": 7,
    "field.45": 8,
    "field.52": 9,
    "field.59": 10,
    "field.94": 11,
    "field.138": 3_000_000,
    "field.139": 4_000_000,
}


async def test_every_field_is_read_in_its_unit(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        node.nvml.set(FIRST.uuid, **METRICS)
        found = await node.driver.measure(LIMIT_S)
    sample = found.samples[0]
    assert (sample.index, sample.address, sample.uuid) == (0, "0000:10:00.0", FIRST.uuid)
    assert (sample.minor, sample.product, sample.gpu_instance) == (0, FIRST.name, None)
    assert sample.values == {
        DeviceField.GPU_UTIL: 37,
        DeviceField.MEM_COPY_UTIL: 12,
        DeviceField.FB_USED: 1024,
        DeviceField.FB_FREE: 81559 - 1024,
        DeviceField.GPU_TEMP: 41,
        DeviceField.MEMORY_TEMP: 51,
        DeviceField.POWER_USAGE: 411.25,
        DeviceField.TOTAL_ENERGY_CONSUMPTION: 123_456_789,
        DeviceField.SM_CLOCK: 1980,
        DeviceField.MEM_CLOCK: 2619,
        DeviceField.CLOCK_THROTTLE_REASONS: 4,
        DeviceField.ECC_SBE_VOL_TOTAL: 1,
        DeviceField.ECC_DBE_VOL_TOTAL: 2,
        DeviceField.ECC_SBE_AGG_TOTAL: 3,
        DeviceField.ECC_DBE_AGG_TOTAL: 4,
        DeviceField.CORRECTABLE_REMAPPED_ROWS: 5,
        DeviceField.UNCORRECTABLE_REMAPPED_ROWS: 6,
        DeviceField.ROW_REMAP_FAILURE: 1,
        DeviceField.NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: 7,
        DeviceField.NVLINK_CRC_DATA_ERROR_COUNT_TOTAL: 8,
        DeviceField.NVLINK_REPLAY_ERROR_COUNT_TOTAL: 9,
        DeviceField.NVLINK_RECOVERY_ERROR_COUNT_TOTAL: 10,
        DeviceField.PCIE_REPLAY_COUNTER: 11,
    }
    assert sample.nvlink_kib == 7_000_000
    # The second one supports no more than every device does.
    assert found.samples[1].values.keys() == {
        DeviceField.FB_USED,
        DeviceField.FB_FREE,
        DeviceField.GPU_TEMP,
    }
    assert found.samples[1].nvlink_kib is None


async def test_partitioned_device_has_its_memory_by_instance(tmp_path: Path):
    device = a_device(0, is_mig_enabled=True)
    async with nvml_node(tmp_path, device) as node:
        parts = {"gi.7": "0 4", "ci.7.0": "1 MIG-a", "gi.8": "2 5", "memory.7": 9856, "used.7": 56}
        node.nvml.set(device.uuid, **parts)
        found = await node.driver.measure(LIMIT_S)
    whole, instance = found.samples
    assert whole.values.keys() == {DeviceField.GPU_TEMP}
    assert (instance.uuid, instance.unit) == (device.uuid, "MIG-a")
    assert (instance.gpu_instance, instance.profile) == (7, "1g.10gb")
    assert instance.values == {DeviceField.FB_USED: 56, DeviceField.FB_FREE: 9800}


async def test_processes_are_read_where_that_is_asked_for(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        node.nvml.set(FIRST.uuid, processes="7,8", graphics_processes="8,9", mps_processes="10")
        plain = await node.driver.measure(LIMIT_S)
        found = await node.driver.measure(LIMIT_S, reads_processes=True)
    assert [sample.processes for sample in plain.samples] == [None, None]
    assert [sample.processes for sample in found.samples] == [{7, 8, 9, 10}, frozenset()]


async def test_process_of_an_instance_is_not_one_of_the_rest_of_its_device(tmp_path: Path):
    device = a_device(0, is_mig_enabled=True)
    async with nvml_node(tmp_path, device) as node:
        parts = {"gi.7": "0 4", "ci.7.0": "1 MIG-a", "gi.8": "2 5", "ci.8.0": "1 MIG-b"}
        node.nvml.set(device.uuid, **parts, **{"busy.7": "7", "processes": "7,9"})
        found = await node.driver.measure(LIMIT_S, reads_processes=True)
    current = {sample.unit or sample.uuid: sample.processes for sample in found.samples}
    assert current == {device.uuid: {9}, "MIG-a": {7}, "MIG-b": frozenset()}


async def test_values_that_no_device_has_are_left_out_of_the_page(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST) as node:
        lies = {"utilisation": 65535, "memory_utilisation": -1, "field.82": -1, "milliwatts": -1}
        node.nvml.set(FIRST.uuid, **{**METRICS, **lies})
        found = await node.driver.measure(LIMIT_S)
    page = page_of(found.samples, {}, pools={}, node="n1")
    assert set(page.implausible) == {
        DeviceField.GPU_UTIL,
        DeviceField.MEM_COPY_UTIL,
        DeviceField.MEMORY_TEMP,
        DeviceField.POWER_USAGE,
    }
    assert b"DCGM_FI_DEV_SM_CLOCK" in page.content


async def test_processes_that_no_device_can_have_are_passed_over(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.set(FIRST.uuid, processes=f"0,{2**31},{os.getpid()}")
        [sample] = (await node.driver.measure(LIMIT_S, reads_processes=True)).samples
    assert pods_of_processes(sample.processes or ()).keys() == {os.getpid()}


async def test_processes_that_cannot_be_read_are_none_and_other_values_stay(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.run_process(FIRST.uuid, 7)
        node.nvml.fail("nvmlDeviceGetComputeRunningProcesses_v3", NOT_SUPPORTED, times=-1)
        [sample] = (await node.driver.measure(LIMIT_S, reads_processes=True)).samples
    assert sample.processes == frozenset()
    assert DeviceField.FB_USED in sample.values


async def test_lost_device_is_left_out(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        await node.driver.measure(LIMIT_S)
        node.nvml.lose(FIRST.uuid)
        found = await node.driver.measure(LIMIT_S)
    assert [sample.uuid for sample in found.samples] == [SECOND.uuid]
    assert found.changed == 0


async def test_device_whose_uuid_changes_meanwhile_is_left_out_and_counted(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        node.nvml.set(FIRST.uuid, other_uuid="GPU-another")
        found = await node.driver.measure(LIMIT_S)
    assert [sample.uuid for sample in found.samples] == [SECOND.uuid]
    assert found.changed == 1


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetGraphicsRunningProcesses_v3"]
)
async def test_call_that_hangs_is_given_up_and_no_other_call_waits(tmp_path: Path, function: str):
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.hang(function)
        with pytest.raises(DriverUnavailableError) as raised:
            await node.driver.measure(0.05, reads_processes=True)
        assert raised.value.reason is AgentDegraded.DRIVER_HANGS
        # It still hangs.
        with pytest.raises(DriverUnavailableError, match="overdue"):
            await node.driver.measure(0.05)
        if "Processes" not in function:  # A look counts the processes, too.
            assert [device.uuid for device in (await node.driver.read()).devices] == [FIRST.uuid]
        node.nvml.unhang()


async def test_measuring_follows_a_driver_that_was_loaded_again(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST) as node:
        await node.driver.read()
        await node.driver.measure(LIMIT_S)
        node.nvml.restart_driver()
        with pytest.raises(DriverUnavailableError):
            await node.driver.measure(LIMIT_S)
        await node.driver.read()
        assert len((await node.driver.measure(LIMIT_S)).samples) == 1


async def test_mode_of_a_device_changes_while_metrics_are_read(tmp_path: Path):
    """Only a device that no session has open can change its mode."""
    async with nvml_node(tmp_path, FIRST) as node:
        await node.driver.measure(LIMIT_S)
        assert await node.driver.set_mig(FIRST.uuid, is_enabled=True)
        assert node.nvml.read()["gpu.0.mig.current"] == "1"
        assert len((await node.driver.measure(LIMIT_S)).samples) == 1


async def test_role_serves_what_the_driver_and_its_events_tell(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.set(FIRST.uuid, **METRICS)
        settings = AgentSettings(
            node="n1",
            roles=frozenset({AgentRole.INVENTORY, AgentRole.HEALTH, AgentRole.TELEMETRY}),
            namespace="ours",
            run_directory=tmp_path,
            sysfs=tmp_path,
            driver_libraries=str(node.nvml.library.parent),
        )
        # Nothing is asked of this client.
        client = cast("KubeClient", None)
        role = InventoryRole(AgentContext(settings, client, SystemClock()), None)
        tasks = role.tasks()
        serving = tasks.pop("device.metrics")
        for other in tasks.values():
            other.close()
        role.health.take([DriverEvent(uuid=FIRST.uuid, kind=EventKind.XID, code=31)])
        assert role.device_metrics is not None
        async with asyncio.TaskGroup() as group:
            task = group.create_task(serving)
            lines = (await role.device_metrics.page()).decode().splitlines()
            task.cancel()
        await role.close()
    values = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if "{" in line}
    # A rate needs two pages.
    fields = set(DeviceField) - {DeviceField.NVLINK_BANDWIDTH_TOTAL}
    assert values.keys() == {field.value.name for field in fields}
    assert values["DCGM_FI_DEV_XID_ERRORS"] == "31"
    assert values["DCGM_FI_DEV_POWER_USAGE"] == "411.25"


def test_telemetry_needs_the_inventory():
    with pytest.raises(ValueError, match="telemetry requires the role inventory"):
        AgentSettings(node="n1", roles=frozenset({AgentRole.TELEMETRY}), namespace="ours")

"""The same driver, and the metrics that it reads, on a device, where the machine has one: nothing on it is changed."""

import asyncio
import dataclasses
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.device_metrics.page import page_of
from agent.driver.device_fields import DeviceField
from agent.driver.port import DriverDevice
from agent.kubelet.pod_processes import pods_of_processes
from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock


@pytest.fixture
async def driver(driver_library: Path) -> AsyncIterator[NvmlDriver]:
    driver = NvmlDriver(SystemClock(), library=driver_library)
    yield driver
    await driver.close()


async def test_devices_are_those_of_nvidia_smi(driver: NvmlDriver) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("there is no nvidia-smi to compare with")
    query = "uuid,pci.bus_id,name,memory.total,compute_cap,driver_version"
    reported = await asyncio.to_thread(
        subprocess.run,
        [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = sorted(tuple(line.split(", ")) for line in reported.stdout.splitlines())
    snapshot = await driver.read()
    assert expected == sorted(
        (
            device.uuid,
            f"0000{device.address}".upper(),
            device.product,
            str(device.memory_mib),
            device.compute_capability,
            snapshot.driver_version,
        )
        for device in snapshot.devices
    )


async def test_two_looks_are_alike(driver: NvmlDriver) -> None:
    def lasting(device: DriverDevice) -> DriverDevice:
        return dataclasses.replace(device, temperature_celsius=None, processes=0)

    first, second = await driver.read(), await driver.read()
    assert list(map(lasting, first.devices)) == list(map(lasting, second.devices))
    assert all(device.minor >= 0 and not device.is_lost for device in first.devices)
    assert all(device.profiles or not device.is_mig_capable for device in first.devices)


async def test_quiet_devices_have_no_events(driver: NvmlDriver) -> None:
    assert await driver.wait_for_events(2.0) == ()
    assert (await driver.read()).devices


async def test_metrics_of_every_device_are_plausible(driver: NvmlDriver) -> None:
    snapshot = await driver.read()
    found = await driver.measure(10.0, reads_processes=True)
    whole = [sample for sample in found.samples if sample.gpu_instance is None]
    assert found.changed == 0
    assert {item.uuid for item in whole} == {device.uuid for device in snapshot.devices}
    every_device = {DeviceField.GPU_TEMP, DeviceField.SM_CLOCK, DeviceField.MEM_CLOCK}
    for item in whole:
        assert every_device <= item.values.keys()
    page = page_of(found.samples, {}, pools={}, node="n1")
    assert page.implausible == []
    memory = {device.uuid: device.memory_mib or 0 for device in snapshot.devices}
    for sample in found.samples:
        if DeviceField.FB_USED in sample.values:
            size = sample.values[DeviceField.FB_USED] + sample.values[DeviceField.FB_FREE]
            assert 0 < size <= memory[sample.uuid]


async def test_processes_of_devices_are_processes_of_the_machine(driver: NvmlDriver) -> None:
    """As far as this PID namespace has them."""
    found = await driver.measure(10.0, reads_processes=True)
    pids = {pid for sample in found.samples for pid in sample.processes or ()}
    assert all(sample.processes is not None for sample in found.samples)
    assert os.getpid() not in pids
    assert pods_of_processes(pids).keys() <= pids

"""The reset of devices by NVIDIA's own program, with NVML closed meanwhile."""

from pathlib import Path

import pytest

from agent.errors import DriverUnavailableError, PartitioningError, ResetRefusedError
from agent.nvml.driver import NvmlDriver
from agent.nvml.reset import reset_devices
from agent.repair.resets import reset_group
from http_edge.system_clock import SystemClock
from inventory.health.recovery import RecoveryAction
from tests.component.agent.nvml_node import nvml_node
from tests.support.nvml.library import FakeNvml, a_device, install_smi

FIRST, SECOND = a_device(0, recovery_action=1), a_device(1, recovery_action=1)


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    """A driver below a root, with its program."""
    made = FakeNvml(tmp_path / "usr" / "lib64", FIRST, SECOND)
    install_smi(made, tmp_path)
    return made


async def test_devices_are_reset_together_and_others_are_not(tmp_path: Path, nvml: FakeNvml):
    driver = NvmlDriver(SystemClock(), driver_root=tmp_path, wait_ms=50)
    try:
        await driver.wait_for_events(0.1)
        await driver.read()
        await driver.reset([SECOND.uuid])
        found = {item.uuid: item.recovery_action for item in (await driver.read()).devices}
        assert found == {FIRST.uuid: RecoveryAction.GPU_RESET, SECOND.uuid: RecoveryAction.NONE}
        await driver.reset([FIRST.uuid, SECOND.uuid])
        found = {item.uuid: item.recovery_action for item in (await driver.read()).devices}
        assert set(found.values()) == {RecoveryAction.NONE}
    finally:
        await driver.close()


async def test_neighbours_by_nvlink_are_reset_together_and_those_behind_a_switch_are_not(
    tmp_path: Path,
):
    first = a_device(0, nvlinks=(SECOND.address, "switch"))
    second = a_device(1, nvlinks=(FIRST.address, "switch"))
    third = a_device(2, nvlinks=("switch",))
    async with nvml_node(tmp_path, first, second, third) as node:
        devices = (await node.driver.read()).devices
    assert reset_group(devices, first.uuid) == (first.uuid, second.uuid)
    assert reset_group(devices, third.uuid) == (third.uuid,)


def test_a_device_in_use_is_refused_in_the_drivers_words(tmp_path: Path, nvml: FakeNvml):
    nvml.run_process(FIRST.uuid, 7)
    with pytest.raises(ResetRefusedError, match="in use by another client") as refused:
        reset_devices(tmp_path, str(nvml.library), [FIRST.uuid])
    assert refused.value.is_in_use


def test_a_reset_that_hangs_has_an_end(tmp_path: Path, nvml: FakeNvml):
    nvml.hang("nvidia-smi")
    with pytest.raises(DriverUnavailableError, match=r"did not end within 0\.2 s"):
        reset_devices(tmp_path, str(nvml.library), [FIRST.uuid], within_s=0.2)


def test_a_driver_without_the_program_says_so(tmp_path: Path):
    with pytest.raises(ResetRefusedError, match="no nvidia-smi under") as refused:
        reset_devices(tmp_path, "", ["GPU-1"])
    assert not refused.value.is_in_use
    assert not issubclass(ResetRefusedError, PartitioningError)

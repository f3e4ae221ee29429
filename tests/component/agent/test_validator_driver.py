"""The validator's step `driver`: NVML, the bus, the kernel's modules, and device files."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.validator.checks import GDRCOPY, NVIDIA_FS, ModuleCheck
from agent.validator.driver_check import DriverCheck
from agent.validator.steps import Outcome, Passed
from agent.validator.toolkit_check import ToolkitCheck
from api.nodefiles.poolconfig import DeviceInjection
from http_edge.system_clock import SystemClock
from tests.support.nvml.library import a_device
from tests.support.validated_node import ValidatedNode, cause_of, text_of


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ValidatedNode]:
    node = ValidatedNode(tmp_path, a_device(0), a_device(1))
    yield node
    node.nvml.unhang()


async def snapshot(node: ValidatedNode) -> Outcome:
    return await DriverCheck(node.checked, SystemClock()).run()


async def test_a_good_driver_passes_and_says_where_its_files_are(node: ValidatedNode):
    outcome = await snapshot(node)
    assert isinstance(outcome, Passed)
    assert outcome.text == "driver 570.86.15, devices: 2"
    assert outcome.content == {
        "IS_HOST_DRIVER": "true",
        "NVIDIA_DRIVER_ROOT": "/",
        "DRIVER_ROOT_CTR_PATH": "/host",
        "NVIDIA_DEV_ROOT": "/",
        "DEV_ROOT_CTR_PATH": "/host",
    }


async def test_the_root_of_a_driver_container_is_named(tmp_path: Path):
    node = ValidatedNode(tmp_path, a_device(0))
    inside = node.root / "run" / "nvidia" / "driver"
    inside.mkdir(parents=True)
    (node.root / "usr").rename(inside / "usr")
    outcome = await snapshot(node)
    assert isinstance(outcome, Passed)
    assert outcome.content["IS_HOST_DRIVER"] == "false"
    assert outcome.content["NVIDIA_DRIVER_ROOT"] == "/run/nvidia/driver"


async def test_libraries_are_found_in_the_directory_that_the_setting_names(tmp_path: Path):
    """By all steps: toolkit needs them where kubelet hands out device files, and cuda finds libcuda there."""
    node = ValidatedNode(tmp_path, a_device(0), hand_out=DeviceInjection.DEVICES)
    elsewhere = node.root / "opt"
    node.nvml.library.parent.rename(elsewhere)
    checked = dataclasses.replace(node.checked, driver_libraries="/opt")
    assert isinstance(await DriverCheck(checked, SystemClock()).run(), Passed)
    assert isinstance(await ToolkitCheck(checked, SystemClock()).run(), Passed)
    node.nvml.library = elsewhere / node.nvml.library.name
    assert checked.library() == node.nvml.library
    node.nvml.library.unlink()
    assert checked.cuda_library() == elsewhere / node.nvml.cuda_library.name


async def test_a_missing_driver_is_explained(node: ValidatedNode):
    node.nvml.library.unlink()
    node.nvml.cuda_library.unlink()
    cause = cause_of(await snapshot(node))
    assert "there is no libnvidia-ml.so.1" in cause
    assert (
        "the kernel module nvidia is not loaded (on the bus: 0000:10:00.0, 0000:11:00.0)" in cause
    )


async def test_a_driver_that_is_not_loaded_is_explained(node: ValidatedNode):
    node.nvml.unload_driver()
    cause = cause_of(await snapshot(node))
    assert "modprobe nvidia" in cause
    assert "the kernel module nvidia is not loaded" in cause
    node.load_module("nvidia")
    assert "the kernel module nvidia is loaded" in cause_of(await snapshot(node))


async def test_another_driver_of_the_device_is_named(node: ValidatedNode):
    node.nvml.unload_driver()
    node.plug(node.devices[0], driver="nouveau")
    assert "0000:10:00.0 has the driver nouveau: unbind it" in cause_of(await snapshot(node))


async def test_a_uuid_that_changes_between_two_calls_fails_the_step(node: ValidatedNode):
    """NVML lies."""
    old, new = node.devices[0].uuid, "GPU-99999999-0000-0000-0000-000000000000"
    node.nvml.set(old, other_uuid=new)
    assert cause_of(await snapshot(node)) == (
        f"NVML contradicts itself: device 0000:10:00.0 has UUID {old}, then {new}:"
        " reset the device or restart the node"
    )


async def test_one_uuid_of_two_devices_fails_the_step(node: ValidatedNode):
    with node.nvml.edit() as lines:
        lines["gpu.1.uuid"] = lines["gpu.0.uuid"]
    assert "two devices have the UUID" in cause_of(await snapshot(node))


async def test_a_lost_device_does_not_fail_the_others(node: ValidatedNode):
    node.nvml.lose(node.devices[1].uuid)
    assert text_of(await snapshot(node)).endswith("; without 0000:11:00.0, which it does not reach")


async def test_a_node_without_a_usable_device_fails(tmp_path: Path):
    node = ValidatedNode(tmp_path)
    node.plug(a_device(0))
    assert cause_of(await snapshot(node)).startswith(
        "the driver shows no device (on the bus: 0000:10:00.0)"
    )


@pytest.mark.parametrize("name", ["nvidia0", "nvidiactl", "nvidia-uvm"])
async def test_a_missing_device_file_is_named_with_the_cure(node: ValidatedNode, name: str):
    (node.dev / name).unlink()
    cause = cause_of(await snapshot(node))
    assert f"{node.dev}/{name}" in cause
    assert "nvidia-modprobe -u -c 0" in cause


async def test_a_driver_that_hangs_is_explained_in_time(node: ValidatedNode):
    node.nvml.hang("nvmlDeviceGetUUID")
    checked = dataclasses.replace(node.checked, read_s=0.1)
    cause = cause_of(await DriverCheck(checked, SystemClock()).run())
    assert "the driver's answer to read is overdue" in cause


def test_the_signature_changes_with_the_driver_and_the_bus(node: ValidatedNode):
    check = DriverCheck(node.checked, SystemClock())
    before = check.signature()
    assert check.signature() == before
    node.plug(a_device(2))
    assert check.signature() != before
    before = check.signature()
    (node.dev / "nvidia-uvm").unlink()
    assert check.signature() != before


async def test_kernel_modules_of_storage_and_of_copies(node: ValidatedNode):
    storage, copies = ModuleCheck(node.checked, NVIDIA_FS), ModuleCheck(node.checked, GDRCOPY)
    assert cause_of(await storage.run()) == (
        "the kernel module nvidia_fs is not loaded: install NVIDIA GPUDirect Storage and run modprobe nvidia-fs,"
        " or set bootstrap.validator.enable_nvidia_fs_validation to false"
    )
    before = copies.signature()
    node.load_module("nvidia_fs")
    node.load_module("gdrdrv")
    assert text_of(await storage.run()) == "kernel module nvidia_fs"
    assert f"the device file {node.dev}/gdrdrv is missing" in cause_of(await copies.run())
    node.make_device("gdrdrv")
    assert text_of(await copies.run()) == "kernel module gdrdrv"
    assert copies.signature() != before

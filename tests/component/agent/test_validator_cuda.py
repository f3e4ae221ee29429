"""The validator's step `cuda`: each device in a child process, with a libcuda of the tests' own."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.validator.cuda_check import CudaCheck
from agent.validator.steps import Outcome
from http_edge.system_clock import SystemClock
from tests.support.nvml.library import a_device
from tests.support.polling import LIMIT_S
from tests.support.validated_node import ValidatedNode, cause_of, text_of

UUID = a_device(0).uuid
OTHER = a_device(1).uuid


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ValidatedNode]:
    node = ValidatedNode(tmp_path, a_device(0), a_device(1))
    yield node
    node.nvml.unhang()


async def snapshot(node: ValidatedNode, probe_s: float = LIMIT_S) -> Outcome:
    return await CudaCheck(node.checked, SystemClock(), probe_s=probe_s).run()


async def test_every_device_is_copied_on(node: ValidatedNode):
    assert text_of(await snapshot(node)) == "copied on 2 devices and MIG instances"


async def test_every_mig_instance_is_copied_on(tmp_path: Path):
    node = ValidatedNode(tmp_path, a_device(0, is_mig_enabled=True), a_device(1))
    with node.nvml.edit() as lines:
        for number in range(2):
            lines[f"gpu.0.gi.{number}"] = f"0 {number}"
            lines[f"gpu.0.ci.{number}.0"] = f"0 MIG-0000000{number}-0000-0000-0000-000000000000"
    assert text_of(await snapshot(node)) == "copied on 3 devices and MIG instances"


@pytest.mark.parametrize(
    ("function", "code", "cause"),
    [
        (
            "cuInit",
            100,
            "cuInit: CUDA_ERROR_NO_DEVICE: the driver shows the device and CUDA does not",
        ),
        ("cuInit", 999, "cuInit: CUDA_ERROR_UNKNOWN: load the kernel module nvidia_uvm"),
        ("cuInit", 802, "cuInit: 802: start NVIDIA Fabric Manager"),
        ("cuCtxCreate_v2", 46, "cuCtxCreate_v2: CUDA_ERROR_DEVICE_UNAVAILABLE: see NVRM"),
        ("cuMemcpyDtoH_v2", 700, "cuMemcpyDtoH_v2: 700: see NVRM"),
    ],
)
async def test_a_call_that_fails_is_named(
    node: ValidatedNode, function: str, code: int, cause: str
):
    node.nvml.fail(function, code, times=-1)
    text = cause_of(await snapshot(node))
    assert text.startswith(f"device {UUID}: {cause}")
    assert text.endswith("(and 1 more devices fail)")


async def test_memory_that_is_taken_is_named(node: ValidatedNode):
    node.nvml.set(OTHER, cuda_free_bytes=1024)
    assert cause_of(await snapshot(node)) == (
        f"device {OTHER}: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY: no process is on the device, and its memory"
        " is taken: reset the device or restart the node"
    )


async def test_a_wrong_result_is_named(node: ValidatedNode):
    node.nvml.set(OTHER, cuda_flips=1)
    assert cause_of(await snapshot(node)) == (
        f"device {OTHER}: byte 524288 of 1048576 differs after a copy in its memory:"
        " take the device out of service"
    )


async def test_a_call_that_hangs_is_named_in_time(node: ValidatedNode):
    node.nvml.hang("cuCtxCreate_v2")
    cause = ""
    for within_s in (1.0, 5.0, LIMIT_S):  # A busy machine may not be there after a second.
        if "cuCtxCreate_v2" not in cause:
            cause = cause_of(await snapshot(node, within_s))
    assert f"device {UUID}: cuCtxCreate_v2 does not return" in cause


async def test_a_child_that_is_killed_is_named(node: ValidatedNode):
    node.nvml.kill_at("cuMemcpyHtoD_v2")
    assert "cuMemcpyHtoD_v2 ended the process (exit status -9)" in cause_of(await snapshot(node))


async def test_another_device_in_its_place_is_named(node: ValidatedNode):
    node.nvml.set(UUID, cuda_uuid=OTHER)
    assert "CUDA shows another device in its place" in cause_of(await snapshot(node))


async def test_a_device_with_processes_is_not_tried(node: ValidatedNode):
    node.nvml.run_process(UUID, 4711)
    node.nvml.set(UUID, cuda_free_bytes=0)
    assert text_of(await snapshot(node)) == (
        f"copied on 1 devices and MIG instances; in use, not tried: {UUID}"
    )


async def test_an_exclusive_device_that_is_in_use_passes(node: ValidatedNode):
    """The process came after the driver was asked."""
    node.nvml.set(UUID, compute_mode=3, held=1)
    assert text_of(await snapshot(node))


async def test_a_prohibited_device_is_named_with_the_cure(node: ValidatedNode):
    node.nvml.set(UUID, compute_mode=2)
    assert "run nvidia-smi -c DEFAULT" in cause_of(await snapshot(node))


async def test_a_library_that_is_none_is_named(node: ValidatedNode):
    node.nvml.cuda_library.write_bytes(b"no library")
    assert "dlopen" in cause_of(await snapshot(node))


async def test_a_missing_library_is_named(node: ValidatedNode):
    node.nvml.cuda_library.unlink()
    assert "there is no libcuda.so.1 under" in cause_of(await snapshot(node))


async def test_the_child_has_no_credentials(
    node: ValidatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of the environment it has PATH and its device; a library of the node's runs in it."""
    monkeypatch.setenv("KUBERNETES_TOKEN", "secret")
    node.nvml.hang("cuInit")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(snapshot(node))
        found: list[bytes] = []
        async with asyncio.timeout(LIMIT_S):
            while not found:
                await asyncio.sleep(0.01)
                found = environments_with(UUID)
        names = {line.split(b"=")[0] for line in found[0].split(b"\0") if line}
        node.nvml.unhang()
        await task
    assert names == {b"PATH", b"CUDA_VISIBLE_DEVICES"}


def environments_with(uuid: str) -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return [item for item in found if f"CUDA_VISIBLE_DEVICES={uuid}".encode() in item]


async def test_without_a_driver_nothing_is_tried(node: ValidatedNode):
    node.nvml.unload_driver()
    assert "modprobe nvidia" in cause_of(await snapshot(node))

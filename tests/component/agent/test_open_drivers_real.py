"""Processes with the real driver open, where the machine has one: nothing on it is changed."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.driver_processes.open_drivers import OpenProcess, driver_majors, processes_with_driver

NVML = """
nvml = ctypes.CDLL(sys.argv[1])
assert nvml.nvmlInit_v2() == 0
"""
CUDA = """
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
if answer := cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
    sys.exit(f"cuInit: {answer}")
create = getattr(cuda, "cuCtxCreate_v2", cuda.cuCtxCreate)
if answer := create(ctypes.byref(context), 0, device):
    sys.exit(f"cuCtxCreate: {answer}")
"""
PROGRAM = """
import ctypes, sys
open("/proc/self/comm", "w").write("a-driver-user")
{}
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def majors(driver_library: Path) -> frozenset[int]:
    """Of all device files of the driver."""
    files = [path for path in Path("/dev").glob("nvidia*") if path.is_char_device()]
    return driver_majors() | {os.major(file.stat().st_rdev) for file in files}


@contextmanager
def a_user(program: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that has the driver open by the time that this yields."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n", "it cannot use the driver: see its output"
        yield child
        child.kill()


def with_driver(majors: frozenset[int], pid: int) -> list[OpenProcess]:
    return [process for process in processes_with_driver(majors) if process.pid == pid]


def test_the_kernel_names_the_numbers_of_the_device_files(majors: frozenset[int]) -> None:
    if not Path("/proc/devices").exists():
        pytest.skip("this sandbox hides the kernel's list of devices")
    control = os.major(Path("/dev/nvidiactl").stat().st_rdev)
    assert control in driver_majors()
    assert driver_majors() >= majors


def test_process_with_nvml_open_is_found_until_it_ends(
    driver_library: Path, majors: frozenset[int]
) -> None:
    with a_user(NVML, str(driver_library)) as child:
        assert with_driver(majors, child.pid) == [OpenProcess(child.pid, "a-driver-user")]
        assert with_driver(majors, os.getpid()) == []
    assert with_driver(majors, child.pid) == []


def test_process_with_a_cuda_context_is_found_until_it_ends(majors: frozenset[int]) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("this machine has NVIDIA's driver without libcuda")
    with a_user(CUDA) as child:
        assert with_driver(majors, child.pid) == [OpenProcess(child.pid, "a-driver-user")]
    assert with_driver(majors, child.pid) == []

"""The step `cuda`: a program of CUDA copies to and from the memory of each device and each MIG instance.

Each is tried in a child process of its own that sees this device only: a call that hangs, or that ends the process,
names its device and stops nothing else. A device with processes on it is not tried: it works, and a context would
take memory that its pod may need.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from agent.errors import DriverUnavailableError
from agent.validator import cuda_probe
from agent.validator.steps import Failed, Outcome, Passed
from api.text import listed, truncate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.driver.port import DriverDevice
    from agent.validator.checked_node import CheckedNode
    from api.clock import Clock

PROBE_S: Final = 20.0
"""One device: libcuda starts in a second, and in several on a node of 16 devices."""
AT_ONCE: Final = 4
_END_S: Final = 2.0
"""Seconds for a killed child to end; one that is stuck in the kernel is left behind."""
_UNAVAILABLE: Final = 46
"""CUDA_ERROR_DEVICE_UNAVAILABLE."""
_OUT_OF_MEMORY: Final = 2
_PROHIBITED: Final = 2
_EXCLUSIVE: Final = 3
_SEE_LOG: Final = "see NVRM in the node's kernel log"
_CURES: Final = {
    _OUT_OF_MEMORY: "no process is on the device, and its memory is taken: reset the device or restart the node",
    100: "the driver shows the device and CUDA does not: the libraries and the kernel module are of two drivers",
    802: "start NVIDIA Fabric Manager on the node",
    803: "libcuda is of another version than the kernel module: reload the module or restart the node",
    999: "load the kernel module nvidia_uvm: run nvidia-modprobe -u -c 0 on the node",
}


@final
class CudaCheck:
    """The check of every device that no process uses."""

    def __init__(self, node: "CheckedNode", clock: "Clock", *, probe_s: float = PROBE_S) -> None:
        self._node = node
        self._clock = clock
        self._probe_s = probe_s

    def signature(self) -> object:
        return self._node.driver_signature()

    async def run(self) -> Outcome:
        library = self._node.cuda_library()
        if library is None:
            return Failed(
                f"there is no libcuda.so.1 under {self._node.driver_root}: install all of NVIDIA's driver,"
                " not its management library alone"
            )
        try:
            (snapshot,) = await self._node.read_driver(self._clock)
        except DriverUnavailableError as error:
            return Failed(str(error))
        usable = [device for device in snapshot.devices if not device.is_lost]
        if not usable:
            return Failed("the driver shows no device")
        free = [device for device in usable if not device.processes]
        targets = [uuid for device in free for uuid in _targets(device)]
        found = await self._probe_all(library, targets)
        failed = {uuid: text for uuid, text in found.items() if text is not None}
        if failed:
            uuid = min(failed)
            more = f" (and {len(failed) - 1} more devices fail)" if len(failed) > 1 else ""
            return Failed(f"device {uuid}: {failed[uuid]}{more}")
        in_use = [device.uuid for device in usable if device.processes]
        beside = f"; in use, not tried: {listed(in_use)}" if in_use else ""
        return Passed(f"copied on {len(targets)} devices and MIG instances{beside}")

    async def _probe_all(self, library: Path, uuids: "Sequence[str]") -> dict[str, str | None]:
        """Return for each what is wrong with it; None for one that works."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def probe(uuid: str) -> str | None:
            async with turn:
                return await self._probe(library, uuid)

        async with asyncio.TaskGroup() as group:
            tasks = {uuid: group.create_task(probe(uuid), name=f"cuda {uuid}") for uuid in uuids}
        return {uuid: task.result() for uuid, task in tasks.items()}

    async def _probe(self, library: Path, uuid: str) -> str | None:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            cuda_probe.__file__,
            str(library),
            env={"PATH": os.defpath, "CUDA_VISIBLE_DEVICES": uuid},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        lines: list[str] = []
        try:
            async with asyncio.timeout(self._probe_s):
                await _read_lines(child, lines)
                code = await child.wait()
        except TimeoutError:
            return f"{_last_call(lines)} does not return: {_SEE_LOG}; a reset may need a reboot of the node"
        finally:
            await _end(child)
        return _check_output(uuid, lines, code)


def _targets(device: "DriverDevice") -> list[str]:
    if not device.is_mig_enabled:
        return [device.uuid]
    return [instance.uuid for instance in device.instances if instance.uuid]


async def _read_lines(child: asyncio.subprocess.Process, lines: list[str]) -> None:
    assert child.stdout is not None
    async for line in child.stdout:
        # One by one: those of a child that hangs are read too.
        lines.append(line.decode("utf-8", "replace").strip())  # noqa: PERF401


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await child.wait()


def _last_call(lines: "Sequence[str]") -> str:
    return lines[-1] if lines else "loading libcuda"


def _check_output(uuid: str, lines: "Sequence[str]", code: int) -> str | None:
    try:
        found: Any = json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    if code != 0 or not isinstance(found, dict):
        return f"{_last_call(lines)} ended the process (exit status {code}): {_SEE_LOG}"
    match found:
        case {"uuid": str(found_uuid)}:
            if uuid.startswith("GPU-") and found_uuid != uuid.removeprefix("GPU-").replace("-", ""):
                return f"CUDA shows another device in its place, {truncate(found_uuid)}: restart the node"
            return None
        case {"wrong": int(at)}:
            return (
                f"byte {at} of {cuda_probe.BYTES} differs after a copy in its memory:"
                " take the device out of service"
            )
        case {"count": int(count)}:
            return f"CUDA shows {count} devices in its place: restart the node"
        case {"call": str(call), "code": int(number), "name": str(name)}:
            return _judge_failure(call, number, name, mode=found.get("mode"))
        case _:
            return f"the probe's answer cannot be read: {truncate(lines[-1])}"


def _judge_failure(call: str, code: int, name: str, *, mode: object) -> str | None:
    if code == _UNAVAILABLE and mode == _EXCLUSIVE:
        # A process has it alone, perhaps since the driver was asked: it works.
        return None
    if code == _UNAVAILABLE and mode == _PROHIBITED:
        return "its compute mode prohibits contexts: run nvidia-smi -c DEFAULT for it"
    error = truncate(name or str(code))
    return f"{call}: {error}: {_CURES.get(code, _SEE_LOG)}"

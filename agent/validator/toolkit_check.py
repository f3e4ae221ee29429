"""The step `toolkit`: the container runtime can hand the devices to containers, in the way that the plugins use.

* `CDI`: a specification of the kind that a runtime takes, with the devices of the driver and files that exist.
* `Environment`: NVIDIA's container runtime is on the node.
* `Devices`: kubelet hands out files; the driver's libraries are there.

Whether the runtime reads CDI specifications at all is a setting of its own (docs/node-agent.md, "Ways to hand out").
"""

import os
import stat
from typing import TYPE_CHECKING, Final, final

from agent.driver.libraries import find_driver_files
from agent.errors import DriverUnavailableError
from agent.files import file_identity
from agent.validator.cdi_specifications import DIRECTORIES, read_specifications, resolve
from agent.validator.steps import Failed, Outcome, Passed
from api.nodefiles.poolconfig import DeviceInjection
from api.text import listed, truncate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.driver.port import DriverDevice
    from agent.validator.cdi_specifications import DeviceNode, ResolvedDevice
    from agent.validator.checked_node import CheckedNode
    from api.clock import Clock

RUNTIME: Final = "nvidia-container-runtime"
_RUNTIME_DIRECTORIES: Final = (
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/nvidia/toolkit",
    "/opt/nvidia/toolkit",
)
_WAIT_FOR_AGENT: Final = "the node agent writes the specification: see the condition AgentDegraded of the node's GPUNodeInventory"


@final
class ToolkitCheck:
    """The check of how containers receive their devices."""

    def __init__(self, node: "CheckedNode", clock: "Clock") -> None:
        self._node = node
        self._clock = clock

    def signature(self) -> object:
        match self._node.hand_out:
            case DeviceInjection.CDI:
                return tuple(
                    (str(path), file_identity(path))
                    for directory in self._directories()
                    for path in _files_of(directory)
                )
            case DeviceInjection.ENVIRONMENT:
                return self._runtime()
            case DeviceInjection.DEVICES:
                return self._node.driver_signature()

    async def run(self) -> Outcome:
        match self._node.hand_out:
            case DeviceInjection.CDI:
                return await self._check_specification()
            case DeviceInjection.ENVIRONMENT:
                return self._check_runtime()
            case DeviceInjection.DEVICES:
                return self._check_libraries()

    async def _check_specification(self) -> Outcome:
        try:
            (snapshot,) = await self._node.read_driver(self._clock)
        except DriverUnavailableError as error:
            return Failed(str(error))
        kind = self._node.cdi_kind
        directories = [list(read_specifications(directory)) for directory in self._directories()]
        resolved = resolve(kind, directories)
        if not resolved:
            faults = [
                f"{file.path.name}: {file.fault}"
                for files in directories
                for file in files
                if file.fault
            ]
            beside = f" ({truncate(listed(faults))})" if faults else ""
            return Failed(
                f"no CDI specification of the kind {kind} in {' or '.join(DIRECTORIES)}{beside}: {_WAIT_FOR_AGENT}"
            )
        for device in snapshot.devices:
            if not device.is_lost and (fault := self._fault_of(device, resolved)):
                return Failed(fault)
        return Passed(f"CDI devices of the kind {kind}: {len(resolved)}")

    def _fault_of(
        self, device: "DriverDevice", resolved: "dict[str, ResolvedDevice | None]"
    ) -> str | None:
        """Return why a runtime cannot give a device, or its MIG instances, to a container."""
        names = [device.uuid, *(instance.uuid for instance in device.instances if instance.uuid)]
        found = [name for name in names if name in resolved]
        if not found:
            return (
                f"the CDI specification of {self._node.cdi_kind} lacks device {device.uuid}:"
                f" {_WAIT_FOR_AGENT}"
            )
        for name in found:
            resolved_device = resolved[name]
            if resolved_device is None:
                return (
                    f"two CDI specifications of one directory have the device {name} of the kind"
                    f" {self._node.cdi_kind}, so that no runtime resolves it: remove one of the files"
                )
            if missing := next(self._missing(resolved_device), None):
                return (
                    f"CDI specification {resolved_device.path.name}: {missing}: {_WAIT_FOR_AGENT}"
                )
        return None

    def _missing(self, device: "ResolvedDevice") -> "Iterator[str]":
        for edits in device.edits:
            for file in edits.device_nodes or ():
                if fault := self._device_fault(file):
                    yield fault
            for mount in edits.mounts or ():
                if self._node.on_host(mount.host_path) is None:
                    yield f"{mount.host_path} is missing on the node"
            for hook in edits.hooks or ():
                if self._node.on_host(hook.path) is None:
                    yield f"the hook {hook.path} is missing on the node"

    def _device_fault(self, file: "DeviceNode") -> str | None:
        path = self._node.on_host(file.on_node)
        try:
            status = None if path is None else path.stat()
        except OSError:
            status = None
        if status is None or not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            return f"the device file {file.on_node} is missing on the node"
        numbers = (file.major, file.minor)
        if None not in numbers and numbers != (os.major(status.st_rdev), os.minor(status.st_rdev)):
            return f"the device file {file.on_node} has other numbers on the node"
        return None

    def _directories(self) -> "list[Path]":
        found = (self._node.on_host(item) for item in DIRECTORIES)
        return [item for item in found if item is not None]

    def _runtime(self) -> "Path | None":
        found = (self._node.on_host(f"{item}/{RUNTIME}") for item in _RUNTIME_DIRECTORIES)
        return next((item for item in found if item is not None and item.is_file()), None)

    def _check_runtime(self) -> Outcome:
        if self._runtime() is None:
            return Failed(
                f"{RUNTIME} is not on the node, and device_plugin.hand_out is Environment: install NVIDIA's"
                " container toolkit, or set hand_out to CDI"
            )
        return Passed(RUNTIME)

    def _check_libraries(self) -> Outcome:
        try:
            files = find_driver_files(self._node.driver_root, self._node.driver_libraries)
        except OSError as error:
            return Failed(f"the driver's libraries cannot be read: {error}")
        if not files.has_libraries:
            return Failed(
                f"there are no driver libraries under {self._node.driver_root}: install NVIDIA's driver"
            )
        return Passed("the driver's libraries")


def _files_of(directory: "Path") -> "list[Path]":
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []

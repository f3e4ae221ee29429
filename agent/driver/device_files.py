"""Device files of the node's devices, with their numbers.

`<dev>/nvidia<minor>` is a device's; `<dev>/nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools` and `nvidia-modeset` are
common. A MIG instance needs its device's file and two capabilities besides, `<dev>/nvidia-caps/nvidia-cap<n>`,
whose numbers are in the kernel driver's `<proc>/driver/nvidia/capabilities/gpu<minor>/mig/gi<g>/access` and
`.../gi<g>/ci<c>/access` (`DeviceFileMinor: <n>`; NVIDIA's MIG user guide, "Device nodes and capabilities"). A
driver without that directory protects nothing by capabilities: there an instance needs its device's file alone.

Nothing here raises: a path that does not exist, or is no device file, is missing.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from agent.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.driver.port import DriverDevice, DriverInstance

SHARED_NAMES: Final = ("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools")
IN_CONTAINER: Final = "/dev"
_MINOR: Final = re.compile(rb"^DeviceFileMinor:\s*(\d{1,9})\s*$", re.MULTILINE)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A device file of the node."""

    path: str
    """Path in a container, such as `/dev/nvidia0`."""
    host_path: str
    """On the node; differs only where device files are kept elsewhere."""
    type: str
    """`c` or `b`."""
    major: int
    minor: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFiles:
    """The device files of all devices at one moment."""

    by_uuid: "Mapping[str, tuple[DeviceFile, ...]]"
    """UUID of a device or MIG instance -> all of its files; one with a missing file is left out."""
    shared: tuple[DeviceFile, ...]
    missing: tuple[str, ...]
    """Descriptions of missing files."""


def find_files(devices: "Sequence[DriverDevice]", *, dev: Path, proc: Path) -> DeviceFiles:
    """Find the device files of the driver's devices and of their complete instances.

    Args:
        devices: of a snapshot; lost ones may still have their file.
        dev: the directory of device files, `/dev`.
        proc: the kernel's `/proc`.
    """
    found: dict[str, tuple[DeviceFile, ...]] = {}
    missing: list[str] = []
    for device in devices:
        own = _device(dev, f"nvidia{device.minor}")
        if own is None:
            missing.append(f"{dev}/nvidia{device.minor} of device {device.uuid}")
            continue
        found[device.uuid] = (own,)
        for instance in device.instances:
            if not instance.uuid:
                continue
            capabilities = _capabilities(instance, device.minor, dev=dev, proc=proc)
            if capabilities is None:
                missing.append(f"capabilities of MIG instance {instance.uuid} under {dev}")
            else:
                found[instance.uuid] = (own, *capabilities)
    shared = tuple(file for name in SHARED_NAMES if (file := _device(dev, name)) is not None)
    return DeviceFiles(by_uuid=found, shared=shared, missing=tuple(missing))


def _capabilities(
    instance: "DriverInstance", device_minor: int, *, dev: Path, proc: Path
) -> tuple[DeviceFile, ...] | None:
    """Return the files of an instance's two capabilities; None where one is missing."""
    capabilities = proc / "driver" / "nvidia" / "capabilities"
    if not capabilities.is_dir():
        return ()
    slice_ = capabilities / f"gpu{device_minor}" / "mig" / f"gi{instance.gpu_instance}"
    files = []
    for directory in (slice_, slice_ / f"ci{instance.compute_instance or 0}"):
        minor = _MINOR.search(read_bytes(directory / "access") or b"")
        file = minor and _device(dev, f"nvidia-caps/nvidia-cap{int(minor[1])}")
        if not file:
            return None
        files.append(file)
    return tuple(files)


def _device(dev: Path, name: str) -> DeviceFile | None:
    path = dev / name
    try:
        status = path.stat()
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode):
        type_ = "c"
    elif stat.S_ISBLK(status.st_mode):
        type_ = "b"
    else:
        return None
    return DeviceFile(
        path=f"{IN_CONTAINER}/{name}",
        host_path=str(path),
        type=type_,
        major=os.major(status.st_rdev),
        minor=os.minor(status.st_rdev),
    )

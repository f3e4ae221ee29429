"""Device files of the node's cards: which there are, and their numbers.

`<dev>/nvidia<minor>` is a card's; `<dev>/nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools` and `nvidia-modeset` are
everybody's. A MIG instance needs its card's file and two capabilities besides, `<dev>/nvidia-caps/
nvidia-cap<n>`, whose numbers the kernel's driver tells in `<proc>/driver/nvidia/capabilities/gpu<minor>/
mig/gi<g>/access` and `.../gi<g>/ci<c>/access` (`DeviceFileMinor: <n>`; NVIDIA's MIG user guide, "Device
nodes and capabilities"). A driver that has no such directory guards nothing by capabilities: there an
instance needs its card's file alone.

Nothing here raises: what is not there, or is no device, is missing.
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
    """In a container, such as `/dev/nvidia0`."""
    host_path: str
    """On the node; the same but where device files are kept elsewhere."""
    type: str
    """`c` or `b`."""
    major: int
    minor: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFiles:
    """The device files of all cards at one moment."""

    by_uuid: "Mapping[str, tuple[DeviceFile, ...]]"
    """Card or MIG instance -> its own files, an instance's card's among them. Whoever lacks one is
    not in it."""
    shared: tuple[DeviceFile, ...]
    missing: tuple[str, ...]
    """What is not there and should be, in words."""


def find_files(devices: "Sequence[DriverDevice]", *, dev: Path, proc: Path) -> FoundFiles:
    """Look for the device files of the driver's cards and of their complete instances.

    Args:
        devices: as the driver shows them; lost ones may have their file still.
        dev: the directory of device files, `/dev`.
        proc: the kernel's own, `/proc`.
    """
    found: dict[str, tuple[DeviceFile, ...]] = {}
    missing: list[str] = []
    for device in devices:
        own = _device(dev, f"nvidia{device.minor}")
        if own is None:
            missing.append(f"{dev}/nvidia{device.minor} of card {device.uuid}")
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
    return FoundFiles(by_uuid=found, shared=shared, missing=tuple(missing))


def _capabilities(
    instance: "DriverInstance", device_minor: int, *, dev: Path, proc: Path
) -> tuple[DeviceFile, ...] | None:
    """Return the files of an instance's two capabilities; None where one is missing."""
    told = proc / "driver" / "nvidia" / "capabilities"
    if not told.is_dir():
        return ()
    slice_ = told / f"gpu{device_minor}" / "mig" / f"gi{instance.gpu_instance}"
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

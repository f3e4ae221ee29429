"""NVIDIA devices on the PCI bus, from sysfs: present with or without a driver.

Functions of NVIDIA that are displays or 3D controllers are devices; audio, USB and NVSwitch functions are not. A
virtual function (SR-IOV: it has a link `physfn`) is left out, since its physical function is the device and it is
made for a virtual machine; in that machine it is an ordinary function and counted there.

Files: Documentation/ABI/testing/sysfs-bus-pci of the kernel. A function may vanish between any two reads: an
unreadable one is absent.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.vendor import GPU_CLASSES, NVIDIA

if TYPE_CHECKING:
    from pathlib import Path

_VALUE_BYTES: Final = 64
"""More than any of the files contains."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A PCI function that is an NVIDIA device; hexadecimal digits are lower case and without 0x."""

    address: str
    """Such as `0000:3b:00.0`."""
    vendor: str
    device: str
    class_: str
    """Base class and subclass: `0300` or `0302`."""
    numa_node: int
    """-1 where unknown."""
    driver: str | None
    """The bound driver, such as `nvidia`, `nouveau` or `vfio-pci`."""


def read_devices(sysfs: "Path") -> tuple[PciDevice, ...]:
    """Return the devices by address; none without a bus. Never raises OSError.

    Cheap enough for every second: the vendor of each function is read, and the rest of NVIDIA's only (1.1 ms for
    300 functions of which 16 are devices).
    """
    folder = str(sysfs / "bus" / "pci" / "devices")
    try:
        addresses = sorted(os.listdir(folder))  # noqa: PTH208  # a Path for each of them is half of the time
    except OSError:
        return ()
    devices = (_read_device(f"{folder}/{address}", address.lower()) for address in addresses)
    return tuple(device for device in devices if device is not None)


def _read_device(function: str, address: str) -> PciDevice | None:
    try:
        if _read_digits(f"{function}/vendor") != NVIDIA:
            return None
        class_ = _read_digits(f"{function}/class")[
            :4
        ]  # The last two are the programming interface.
        if class_ not in GPU_CLASSES:
            return None
        device = _read_digits(f"{function}/device")
    except (OSError, ValueError):
        return None
    if os.path.islink(f"{function}/physfn"):  # noqa: PTH114  # as above
        return None
    return PciDevice(
        address=address,
        vendor=NVIDIA,
        device=device,
        class_=class_,
        numa_node=_read_numa_node(f"{function}/numa_node"),
        driver=_read_driver(f"{function}/driver"),
    )


def _read(path: str) -> str:
    # A third of the time that a file object takes.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _VALUE_BYTES).decode("ascii").strip()
    finally:
        os.close(descriptor)


def _read_digits(path: str) -> str:
    """Return `10de` of `0x10de`; ValueError for any other text."""
    text = _read(path)
    int(text, 16)
    return text.removeprefix("0x").lower()


def _read_numa_node(path: str) -> int:
    try:
        return int(_read(path))
    except (OSError, ValueError):
        return -1


def _read_driver(path: str) -> str | None:
    try:
        return os.path.basename(os.readlink(path))  # noqa: PTH115, PTH119  # as above
    except OSError:
        return None

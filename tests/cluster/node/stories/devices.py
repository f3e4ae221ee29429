"""The GPUs of the node under test: a driver that speaks NVML's ABI, a PCI bus, device files."""

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, final

from tests.cluster.node.environment import numa, paths
from tests.support.nvml.library import FakeNvml, NvmlDevice, install_smi
from tests.support.nvml.library import a_device as nvml_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.cluster.node.environment.real_node import RealNode

COUNT = 12
ISLAND = 4
"""Devices with NVLinks to each other, on one NUMA node."""
DRIVER_ROOT = Path("/run/nvidia/driver")
"""Where NVIDIA's driver container mounts its root; containers get the libraries from there."""
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
"""Below the driver's root."""
_OURS = ".of-gpu-node-tests"
SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_INSTANCES = 14
"""GPU instances of a device whose capabilities are there from the start: the ids of the smallest profile are 7 to 13."""


@final
class NodeDevices:
    """Devices: a sysfs and a procfs in `directory`, the driver where a driver container has it."""

    def __init__(self, directory: Path, count: int = COUNT) -> None:
        self.devices = [_linked(number, count) for number in range(count)]
        self.sysfs = directory / "sys"
        self.procfs = directory / "proc"
        self._files: list[Path] = []
        for device in self.devices:
            self._plug(device)
        if DRIVER_ROOT.exists() and not (DRIVER_ROOT / _OURS).exists():
            raise AssertionError(f"this machine has a driver container: {DRIVER_ROOT} is not ours")
        shutil.rmtree(DRIVER_ROOT, ignore_errors=True)
        DRIVER_ROOT.mkdir(parents=True)
        (DRIVER_ROOT / _OURS).touch()
        self.driver = install_driver(DRIVER_ROOT, self.devices)

    @property
    def uuids(self) -> list[str]:
        return [device.uuid for device in self.devices]

    def remove(self) -> None:
        """Take the driver off the machine, and the device files that it made."""
        shutil.rmtree(DRIVER_ROOT)
        for file in self._files:
            file.unlink(missing_ok=True)

    async def make_devices(self, node: "RealNode") -> None:
        """Make the device files that a driver makes, with the capabilities of MIG."""
        for name in (*(f"nvidia{device.minor}" for device in self.devices), *SHARED):
            self._files.append(await node.make_device(name))
        for device in self.devices:
            for instance in range(_INSTANCES):
                for part, path in enumerate((f"gi{instance}", f"gi{instance}/ci0")):
                    number = 1 + part + 2 * (instance + _INSTANCES * device.minor)
                    self._files.append(await node.make_device(f"nvidia-caps/nvidia-cap{number}"))
                    directory = self._capabilities(device) / path
                    directory.mkdir(parents=True)
                    (directory / "access").write_text(f"DeviceFileMinor: {number}\n", "ascii")

    def capabilities(self, device: NvmlDevice, instance: int) -> list[str]:
        """Return the capability files of a GPU instance, by name."""
        directory = self._capabilities(device) / f"gi{instance}"
        reported = (directory / "access", directory / "ci0" / "access")
        return [f"nvidia-cap{path.read_text('ascii').split()[1]}" for path in reported]

    def _capabilities(self, device: NvmlDevice) -> Path:
        return self.procfs / "driver/nvidia/capabilities" / f"gpu{device.minor}" / "mig"

    def _plug(self, device: NvmlDevice) -> None:
        function = self.sysfs / "bus" / "pci" / "devices" / _address(device)
        function.mkdir(parents=True)
        facts = {
            "vendor": "0x10de",
            "device": "0x2330",
            "class": "0x030200",
            "numa_node": str(device.minor // ISLAND % numa.NODES),
        }
        for name, text in facts.items():
            (function / name).write_text(text + "\n", encoding="ascii")


@contextlib.contextmanager
def devices_of_the_machine(directory: Path, count: int) -> "Iterator[NodeDevices]":
    """Yield devices whose files are in /dev, where a driver has them and DaemonSets look."""
    files = [Path("/dev") / name for name in (*SHARED, *(f"nvidia{n}" for n in range(count)))]
    there = [file for file in files if file.exists()]
    if own := [str(file) for file in there if file.stat().st_rdev != paths.DEVICE]:
        raise AssertionError(f"this machine has devices of its own: {', '.join(own)}")
    for file in there:  # of a session that was killed
        file.unlink()
    made = NodeDevices(directory, count)
    for file in files:
        os.mknod(file, 0o666 | stat.S_IFCHR, paths.DEVICE)
    try:
        yield made
    finally:
        for file in files:
            file.unlink(missing_ok=True)
        made.remove()


def install_driver(
    root: Path, devices: "Sequence[NvmlDevice]", version: str = "570.86.15"
) -> FakeNvml:
    """Put the libraries of a driver of this version below a root."""
    libraries = root / LIBRARIES
    driver = FakeNvml(libraries, *devices)
    install_smi(driver, root)
    with driver.edit() as lines:
        lines["driver"] = version
    driver.cuda_library.rename(libraries / f"libcuda.so.{version}")
    (libraries / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    (libraries / f"libnvidia-cfg.so.{version}").write_bytes(b"a library of the driver")
    (libraries / "libnvidia-cfg.so.1").symlink_to(f"libnvidia-cfg.so.{version}")
    return driver


def _linked(number: int, count: int) -> NvmlDevice:
    first = number - number % ISLAND
    peers = [nvml_device(n) for n in range(first, min(first + ISLAND, count)) if n != number]
    links = tuple(peer.address for peer in peers)
    return nvml_device(number, nvlinks=links, recovery_action=0)


def _address(device: NvmlDevice) -> str:
    return device.address.lower()[4:]

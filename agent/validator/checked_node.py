"""Where the checks find the node's software, and how they look at its driver."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, final

from agent.driver.libraries import DRIVER_CONTAINER, host_of, real_path
from agent.driver.pci import read_devices
from agent.errors import DriverUnavailableError
from agent.files import file_identity, read_bytes
from agent.nvml.driver import READ_S, NvmlDriver
from agent.nvml.library import find_libraries
from agent.settings import CDI_KIND
from api.nodefiles.poolconfig import DeviceInjection

if TYPE_CHECKING:
    from agent.driver.pci import PciDevice
    from agent.driver.port import DriverSnapshot
    from api.clock import Clock

NVIDIA_MODULE = "nvidia"
_CUDA_LIBRARY = "libcuda.so.1"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode:
    """The node in the view of this process."""

    driver_root: Path = Path("/")
    """Mount of the node's root."""
    dev_root: Path = Path("/dev")
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    driver_libraries: str = ""
    """Directory under that root which is searched first."""
    hand_out: DeviceInjection = DeviceInjection.CDI
    cdi_kind: str = CDI_KIND
    read_s: float = READ_S
    """Time-out of a check of the driver."""

    @property
    def host(self) -> Path:
        """Return the node's root, where the driver's is that of a driver container."""
        return host_of(self.driver_root)

    def bus(self) -> "tuple[PciDevice, ...]":
        return read_devices(self.sysfs)

    def is_loaded(self, module: str) -> bool:
        """Whether the kernel has a module; one that is built in has a directory too."""
        if (self.sysfs / "module" / module).is_dir():
            return True
        lines = (read_bytes(self.procfs / "modules") or b"").splitlines()
        return any(line.split(b" ", 1)[0] == module.encode() for line in lines)

    def library(self) -> Path | None:
        """Return NVML's library."""
        return next(find_libraries(self.driver_root, first=self.driver_libraries), None)

    def cuda_library(self) -> Path | None:
        """Return libcuda, beside NVML's library where it is there: both are of one driver."""
        nvml = self.library()
        if nvml is not None and (beside := nvml.parent / _CUDA_LIBRARY).is_file():
            return beside
        return next(find_libraries(self.driver_root, _CUDA_LIBRARY, self.driver_libraries), None)

    def driver_container(self) -> bool:
        """Whether the driver is one of NVIDIA's driver container."""
        found = self.library()
        return found is not None and found.is_relative_to(self.host / DRIVER_CONTAINER)

    def roots(self) -> Mapping[str, str]:
        """Return the content of `driver-ready`: where NVIDIA's containers find driver and device files."""
        is_container = self.driver_container()
        root = f"/{DRIVER_CONTAINER}" if is_container else "/"
        return {
            "IS_HOST_DRIVER": str(not is_container).lower(),
            "NVIDIA_DRIVER_ROOT": root,
            "DRIVER_ROOT_CTR_PATH": "/driver-root" if is_container else "/host",
            "NVIDIA_DEV_ROOT": "/",
            "DEV_ROOT_CTR_PATH": "/host",
        }

    def on_host(self, path: str) -> Path | None:
        """Return the file that a path of the node names, links followed within its root; None without one."""
        parts = PurePosixPath(path)
        if not parts.is_absolute() or ".." in parts.parts:
            return None
        return real_path(self.host, self.host / parts.relative_to("/"))

    def driver_signature(self) -> object:
        """Return a value that changes with the driver or the devices on the bus. Calls no driver."""
        library = self.library()
        names = ("nvidiactl", "nvidia-uvm")
        return (
            frozenset((item.address, item.driver) for item in self.bus()),
            read_bytes(self.procfs / "driver" / "nvidia" / "version"),
            None if library is None else (library, file_identity(library)),
            tuple((self.dev_root / name).exists() for name in names),
        )

    async def read_driver(self, clock: "Clock", reads: int = 1) -> "list[DriverSnapshot]":
        """Look that often at the driver, and close it: an open one cannot be unloaded.

        Raises:
            DriverUnavailableError: as `agent.driver.port.DeviceDriver.read`; the text has the cure.
        """
        driver = NvmlDriver(
            clock,
            driver_root=self.driver_root,
            driver_libraries=self.driver_libraries,
            read_s=self.read_s,
            bus=lambda: frozenset(f"{item.address} {item.driver}" for item in self.bus()),
        )
        try:
            found = [await driver.read() for _ in range(reads)]
        except DriverUnavailableError:
            await _close(driver)
            raise
        # Not after a cancellation, which a driver that hangs would hold up: the process ends then.
        await _close(driver)
        return found


async def _close(driver: NvmlDriver) -> None:
    with contextlib.suppress(DriverUnavailableError):
        await driver.close()

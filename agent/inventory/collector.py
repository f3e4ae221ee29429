"""Collector of the node's devices: reads bus and driver, writes the node's files, and publishes.

The bus is read every second, the driver every ten, and at once on a trigger: a device came or went, the kernel's
driver was loaded or unloaded, a health state changed, a device was partitioned (`trigger`). After each snapshot
the files come first (`agent.inventory.node_files`), then the NodeFeature, so that a device is on the node before
the control plane knows it.

The driver is read in a task of its own: while it hangs, the bus is read, health states reach the files, and the
heartbeat goes on. `telemetry.conditions.AgentDegraded` has the cause then: the last snapshot of a driver that
hangs or fails stays; without a driver the PCI facts are published alone, and the files stay.

A device is gone from the bus after it was missing twice in a row, because the kernel's files of a device during
a reset may be unreadable for a moment, and the GPUDevice of an unpublished device is deleted. A bus that never
had a device, while the driver lists some, is invisible to this process.

Nothing here blocks for longer than reading small files of the kernel and writing two to a file system in memory,
or, where the driver's own files changed, listing its directories. `agent.inventory.node_devices` merges.
"""

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.driver.libraries import host_of
from agent.driver.pci import read_devices
from agent.errors import DriverUnavailableError
from agent.inventory.node_devices import (
    NVIDIA_DRIVER,
    DiscoveredNode,
    discovered_devices,
    last_uuids,
    published_of,
    with_kernels_addresses,
)
from agent.inventory.os_release import read_operating_system
from kube.errors import one_line
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from agent.driver.pci import PciDevice
    from agent.driver.port import DeviceDriver, DriverDevice, DriverSnapshot
    from agent.health.watcher import HealthWatch
    from agent.inventory.node_devices import PublishedFeatures
    from agent.inventory.node_files import NodeFiles, NodePaths
    from agent.problems.registry import ProblemRegistry
    from api.kinds.gpunodeinventory import KubeletConfiguration

TASK: Final = "agent.inventory"
SOURCE: Final = "driver"
"""Source of the problem in the registry."""
BUS_EVERY_S: Final = 1.0
POLL_EVERY_S: Final = 10.0
RETRY_EVERY_S: Final = 2.0
"""Seconds between two attempts while the driver does not answer; a missing driver costs a few system calls."""
PAUSE_S: Final = 0.2
"""Minimum between two snapshots, whatever triggers them."""

_log = structlog.get_logger()


class Publisher(Protocol):
    """Publishes to the control plane; `agent.inventory.publisher.FeaturePublisher`."""

    def publish(self, published: "PublishedFeatures") -> None:
        """Publish this from now on."""


@final
class InventoryCollector:
    """Present state of the node's devices; `run` keeps it current, the other methods are one step each."""

    def __init__(  # noqa: PLR0913  # its dependencies; tests set each alone
        self,
        driver: "DeviceDriver",
        *,
        health: "HealthWatch",
        files: "NodeFiles",
        publisher: Publisher,
        problems: "ProblemRegistry",
        paths: "NodePaths",
        partitioning: "Callable[[], Collection[str]]" = frozenset,
        kubelet: "Callable[[], KubeletConfiguration | None]" = lambda: None,
        on_reading: "Callable[[DriverSnapshot | None], None]" = lambda _: None,
    ) -> None:
        """Wire the parts; `run` does the work.

        Args:
            driver: of the node's devices.
            health: of the devices.
            files: of the node, for its plugins and runtimes.
            publisher: of the devices.
            problems: collects failures of the driver.
            paths: of the host.
            partitioning: returns the UUIDs of devices being partitioned: their instances are published once all exist.
            kubelet: returns the settings of the node's kubelet.
            on_reading: called with the last snapshot after each reading of the driver, with or without an answer.
        """
        self._driver = driver
        self._health = health
        self._files = files
        self._publisher = publisher
        self._problems = problems
        self._paths = paths
        self._partitioning = partitioning
        self._kubelet = kubelet
        self._on_reading = on_reading
        self._bus: tuple[PciDevice, ...] | None = None
        self._missed: frozenset[str] = frozenset()
        """Addresses that were missing in the last reading of the bus, and present in the one before."""
        self._has_seen_devices = False
        self._driver_marks: object = None
        self._snapshot: DriverSnapshot | None = None
        self._uuid_by_address: dict[str, str] = {}
        self._has_read_driver = False
        """Whether the driver was read once: nothing is published before."""
        self._is_answering = False
        self._rejected: tuple[str, ...] = ()
        self._triggered = asyncio.Event()
        TASK_FAILURES.labels(TASK)

    def bound(self) -> frozenset[str]:
        """Return the addresses of the devices that the kernel's driver is bound to, as of the last reading of the bus."""
        return frozenset(item.address for item in self._bus or () if item.driver == NVIDIA_DRIVER)

    def trigger(self) -> None:
        """Read the driver at once."""
        self._triggered.set()

    def health_changed(self) -> None:
        """Write and publish a changed health state, without a call of the driver first; then read the driver."""
        self.refresh()
        self.trigger()

    async def run(self) -> NoReturn:
        """Read, write and publish until cancelled."""
        published_devices = self._files.published_devices()
        if published_devices is not None:
            self._uuid_by_address = {
                device.address: device.uuid for device in published_devices.devices
            }
        self.read_bus()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_bus(), name="inventory.bus")
            group.create_task(self._follow_driver(), name="inventory.driver")
        raise AssertionError("a task group of endless tasks ended")

    async def _follow_bus(self) -> NoReturn:
        while True:
            await asyncio.sleep(BUS_EVERY_S)
            if self.read_bus():
                self.trigger()

    async def _follow_driver(self) -> NoReturn:
        while True:
            self._triggered.clear()
            await self.read_driver()
            await asyncio.sleep(PAUSE_S)
            within_s = POLL_EVERY_S if self._is_answering else RETRY_EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s - PAUSE_S):
                    await self._triggered.wait()

    async def read_driver(self) -> None:
        """Read the driver, write and publish."""
        try:
            snapshot = await self._driver.read()
        except DriverUnavailableError as error:
            self._fail(error)
        else:
            self._accept(snapshot)
        self._has_read_driver = True
        self.refresh()
        self._on_reading(self._snapshot)

    def read_bus(self) -> bool:
        """Read the bus; return whether the driver should be read again."""
        driver_marks = self._read_driver_marks()
        is_new = driver_marks != self._driver_marks
        self._driver_marks = driver_marks
        if not (self._paths.sysfs / "bus" / "pci" / "devices").is_dir():
            bus = None
        else:
            bus = self._confirmed_bus(read_devices(self._paths.sysfs))
        if bus != self._bus:
            self._take_bus(bus)
            is_new = True
        self._has_seen_devices = self._has_seen_devices or bool(bus)
        return is_new

    def _take_bus(self, bus: "tuple[PciDevice, ...] | None") -> None:
        addresses = None if bus is None else {item.address for item in bus}
        _log.info("devices on the bus", devices=None if bus is None else sorted(addresses or ()))
        if addresses is not None:
            # A device that comes to this address is another one, whatever the driver reports.
            for gone in {item.address for item in self._bus or ()} - addresses:
                self._uuid_by_address.pop(gone, None)
        self._bus = bus

    def _confirmed_bus(self, found: "tuple[PciDevice, ...]") -> "tuple[PciDevice, ...]":
        """Return the devices of this reading, and those that are missing for the first time."""
        addresses = {item.address for item in found}
        missing = [item for item in self._bus or () if item.address not in addresses]
        missed_once = [item for item in missing if item.address not in self._missed]
        self._missed = frozenset(item.address for item in missed_once)
        return tuple(sorted((*found, *missed_once), key=lambda item: item.address))

    def _read_driver_marks(self) -> object:
        """Return a value that changes when the kernel's driver is loaded or unloaded."""
        found: list[tuple[int, int] | None] = []
        for path in (
            self._paths.dev / "nvidiactl",
            self._paths.proc / "driver" / "nvidia" / "version",
        ):
            try:
                status = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_rdev))
        return tuple(found)

    @property
    def _seen_bus(self) -> "tuple[PciDevice, ...] | None":
        """The bus, if it is visible to this process."""
        driver_has_devices = bool(self._uuid_by_address) or (
            self._snapshot is not None and bool(self._snapshot.devices)
        )
        return self._bus if self._has_seen_devices or not driver_has_devices else None

    def _accept(self, snapshot: "DriverSnapshot") -> None:
        snapshot = with_kernels_addresses(snapshot, self._bus)
        self._snapshot, self._is_answering = snapshot, True
        bus = self._seen_bus
        on_bus = None
        if bus is not None:
            # A device bound to another driver was unbound from this one, and is not lost.
            on_bus = {item.address for item in bus if item.driver in {None, NVIDIA_DRIVER}}
        self._health.observe(snapshot, on_bus=on_bus)
        self._uuid_by_address = last_uuids(self._uuid_by_address, snapshot, bus=bus)
        self._problems.clear(SOURCE)

    def _fail(self, error: DriverUnavailableError) -> None:
        TASK_FAILURES.labels(TASK).inc()
        self._is_answering = False
        self._health.unavailable(error)
        self._problems.set(SOURCE, error.reason, one_line(str(error)))
        if error.is_absent:
            self._snapshot = None
        bus = self._seen_bus
        if self._snapshot is not None and bus is not None:
            # The kept snapshot of a driver that hangs loses the devices that leave the bus.
            present = {item.address for item in bus}
            devices = tuple(
                device for device in self._snapshot.devices if device.address in present
            )
            self._snapshot = replace(self._snapshot, devices=devices)

    def refresh(self) -> None:
        """Write and publish the present state; files and objects that have it already are not written."""
        if not self._has_read_driver:
            return
        snapshot = self._snapshot
        if snapshot is not None and (partitioning := self._partitioning()):
            devices_now = (
                _without_instances(device) if device.uuid in partitioning else device
                for device in snapshot.devices
            )
            snapshot = replace(snapshot, devices=tuple(devices_now))
        node = DiscoveredNode(
            bus=self._seen_bus, snapshot=snapshot, uuid_by_address=self._uuid_by_address
        )
        devices = discovered_devices(node, self._health.health)
        if devices is None:
            return
        if snapshot is not None:
            self._files.write(devices, snapshot)
        published = published_of(
            devices,
            snapshot,
            self._kubelet(),
            system=read_operating_system(host_of(self._paths.driver_root)),
        )
        if published.rejected != self._rejected:
            self._rejected = published.rejected
            _log.warning("invalid facts left out", keys=list(published.rejected))
        self._publisher.publish(published)


def _without_instances(device: "DriverDevice") -> "DriverDevice":
    return replace(device, instances=())

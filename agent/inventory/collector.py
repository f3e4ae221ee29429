"""The cards of this node: looked at, written into files for the node's programs, and published.

The bus is read every second, the driver every ten, and at once where something calls for it: a card came or
went, the kernel's driver was loaded or unloaded, a verdict changed, a card was cut (`poke`). After each look
the files come first (`agent.inventory.node_files`), then the NodeFeature, so that whoever hears of a card finds it on
the node.

The driver is asked in a task of its own: while it hangs, the bus is read, verdicts reach the files, and the
heartbeat goes on. What is kept then is told by `telemetry.conditions.AgentDegraded`: a driver that hangs or
fails leaves what it said last; without a driver the PCI facts are published alone, and the files stay.

A card is gone from the bus when it was missing twice in a row, because the kernel's files of a card that is
being reset may fail to be read for a moment, and a card that is not published any more is deleted. A bus that
never had a card of ours, where the driver shows some, is one that this process cannot see.

Nothing here blocks for longer than reading small files of the kernel and writing two to a file system in
memory, or, where the driver's own files changed, listing its directories; putting together is `agent.inventory.devices`'.
"""

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.driver.pci import read_devices
from agent.errors import DriverUnavailableError
from agent.inventory.node_devices import (
    NVIDIA_DRIVER,
    DiscoveredNode,
    discovered_devices,
    known_after,
    published_of,
)
from kube.errors import one_line
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from agent.driver.pci import PciDevice
    from agent.driver.port import Driver, DriverDevice, DriverSnapshot
    from agent.health.verdicts import DeviceHealthState
    from agent.inventory.node_devices import Published
    from agent.inventory.node_files import NodeFiles, NodePaths
    from agent.problems.registry import ProblemRegistry

TASK: Final = "agent.inventory"
SOURCE: Final = "driver"
"""Of our problem."""
BUS_EVERY_S: Final = 1.0
LOOK_EVERY_S: Final = 10.0
RETRY_EVERY_S: Final = 2.0
"""While the driver does not answer; one that is missing costs a few calls of the kernel."""
PAUSE_S: Final = 0.2
"""Between two looks at least, whoever pokes."""

_log = structlog.get_logger()


class HealthSource(Protocol):
    """Who judges cards; `agent.health.watcher.HealthWatch`."""

    def health(self, uuid: str) -> "DeviceHealthState":
        """Return the verdict on a card."""

    def observe(self, look: "DriverSnapshot", *, on_bus: "Collection[str] | None" = None) -> None:
        """Take in what the driver answered just now."""

    def unavailable(self, error: DriverUnavailableError) -> None:
        """Take in that the driver did not answer."""


class Publisher(Protocol):
    """Who tells the control plane; `agent.inventory.publisher.FeaturePublisher`."""

    def publish(self, published: "Published") -> None:
        """Say this from now on."""


@final
class InventoryCollector:
    """What is known of the node's cards; `run` keeps it up to date, the other methods are one step each."""

    def __init__(
        self,
        driver: "Driver",
        *,
        health: HealthSource,
        files: "NodeFiles",
        publisher: Publisher,
        problems: "ProblemRegistry",
        places: "NodePaths",
    ) -> None:
        """Take the parts; nothing is looked at before `run`."""
        self._driver = driver
        self._health = health
        self._files = files
        self._publisher = publisher
        self._problems = problems
        self._places = places
        self._bus: tuple[PciDevice, ...] | None = None
        self._missed: frozenset[str] = frozenset()
        """Addresses that the last reading of the bus did not have, and the one before did."""
        self._has_bus_devices = False
        self._marks: object = None
        self._look: DriverSnapshot | None = None
        self._known: dict[str, str] = {}
        self._is_begun = False
        """The driver was asked once: before, nothing is published."""
        self._is_answering = False
        self._unsayable: tuple[str, ...] = ()
        self._poked = asyncio.Event()
        self.cutting: Callable[[], Collection[str]] = frozenset
        """Returns the UUIDs of cards that are being cut: their instances are said once all are made."""
        TASK_FAILURES.labels(TASK)

    @property
    def look(self) -> "DriverSnapshot | None":
        """Return what the driver said last; None without a driver."""
        return self._look

    def bound(self) -> frozenset[str]:
        """Return the addresses of the cards that the kernel's driver has, as the bus was read last."""
        return frozenset(one.address for one in self._bus or () if one.driver == NVIDIA_DRIVER)

    def poke(self) -> None:
        """Look at the driver at once."""
        self._poked.set()

    def health_changed(self) -> None:
        """Write and publish a verdict that changed, without asking the driver first; then ask it."""
        self.settle()
        self.poke()

    async def run(self) -> NoReturn:
        """Look, write and publish until cancelled."""
        remembered = self._files.remembered()
        if remembered is not None:
            self._known = {one.address: one.uuid for one in remembered.devices}
        self.read_bus()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_bus(), name="inventory.bus")
            group.create_task(self._follow_driver(), name="inventory.driver")
        raise AssertionError("a task group of endless tasks ended")

    async def _follow_bus(self) -> NoReturn:
        while True:
            await asyncio.sleep(BUS_EVERY_S)
            if self.read_bus():
                self.poke()

    async def _follow_driver(self) -> NoReturn:
        while True:
            self._poked.clear()
            await self.look_at_driver()
            await asyncio.sleep(PAUSE_S)
            within_s = LOOK_EVERY_S if self._is_answering else RETRY_EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s - PAUSE_S):
                    await self._poked.wait()

    async def look_at_driver(self) -> None:
        """Ask the driver, and settle what came of it."""
        try:
            look = await self._driver.look()
        except DriverUnavailableError as error:
            self._lose(error)
        else:
            self._take(look)
        self._is_begun = True
        self.settle()

    def read_bus(self) -> bool:
        """Read the bus; return whether the driver should be asked anew."""
        marks = self._read_marks()
        is_new = marks != self._marks
        self._marks = marks
        if not (self._places.sysfs / "bus" / "pci" / "devices").is_dir():
            bus = None
        else:
            bus = self._settled_bus(read_devices(self._places.sysfs))
        if bus != self._bus:
            self._take_bus(bus)
            is_new = True
        self._has_bus_devices = self._has_bus_devices or bool(bus)
        return is_new

    def _take_bus(self, bus: "tuple[PciDevice, ...] | None") -> None:
        addresses = None if bus is None else {one.address for one in bus}
        _log.info("cards on the bus", devices=None if bus is None else sorted(addresses or ()))
        if addresses is not None:
            # What comes to its place is another card, whatever the driver says of it, or does not.
            for gone in {one.address for one in self._bus or ()} - addresses:
                self._known.pop(gone, None)
        self._bus = bus

    def _settled_bus(self, found: "tuple[PciDevice, ...]") -> "tuple[PciDevice, ...]":
        """Return what was read, and those that are missing for the first time."""
        addresses = {one.address for one in found}
        missing = [one for one in self._bus or () if one.address not in addresses]
        doubted = [one for one in missing if one.address not in self._missed]
        self._missed = frozenset(one.address for one in doubted)
        return tuple(sorted((*found, *doubted), key=lambda one: one.address))

    def _read_marks(self) -> object:
        """Return what changes when the kernel's driver is loaded or unloaded."""
        found: list[tuple[int, int] | None] = []
        for path in (
            self._places.dev / "nvidiactl",
            self._places.proc / "driver" / "nvidia" / "version",
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
        """The bus, as far as it tells of cards at all."""
        driver_has_devices = bool(self._known) or (
            self._look is not None and bool(self._look.devices)
        )
        return self._bus if self._has_bus_devices or not driver_has_devices else None

    def _take(self, look: "DriverSnapshot") -> None:
        self._look, self._is_answering = look, True
        bus = self._seen_bus
        on_bus = None
        if bus is not None:
            # A card that was given to another driver was taken from this one, and is not lost.
            on_bus = {one.address for one in bus if one.driver in {None, NVIDIA_DRIVER}}
        self._health.observe(look, on_bus=on_bus)
        self._known = known_after(self._known, look, bus=bus)
        self._problems.clear(SOURCE)

    def _lose(self, error: DriverUnavailableError) -> None:
        TASK_FAILURES.labels(TASK).inc()
        self._is_answering = False
        self._health.unavailable(error)
        self._problems.set(SOURCE, error.reason, one_line(str(error)))
        if error.is_absent:
            self._look = None
        bus = self._seen_bus
        if self._look is not None and bus is not None:
            # What is kept of a driver that hangs ends with the card.
            present = {one.address for one in bus}
            devices = tuple(one for one in self._look.devices if one.address in present)
            self._look = replace(self._look, devices=devices)

    def settle(self) -> None:
        """Write and publish what is known now; nothing is written that is there already."""
        if not self._is_begun:
            return
        look = self._look
        if look is not None and (cutting := self.cutting()):
            devices_now = (_uncut(one) if one.uuid in cutting else one for one in look.devices)
            look = replace(look, devices=tuple(devices_now))
        sight = DiscoveredNode(bus=self._seen_bus, look=look, known=self._known)
        devices = discovered_devices(sight, self._health.health)
        if devices is None:
            return
        if look is not None:
            self._files.write(devices, look)
        published = published_of(devices, look)
        if published.unsayable != self._unsayable:
            self._unsayable = published.unsayable
            _log.warning("facts left out", keys=list(published.unsayable))
        self._publisher.publish(published)


def _uncut(device: "DriverDevice") -> "DriverDevice":
    return replace(device, instances=())

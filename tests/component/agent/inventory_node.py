"""A node's devices: a bus of plain files, a driver in memory, and the whole inventory of an agent.

Device files are links to the null device, so that tests need no root.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agent.health.tracker import HealthTracker
from agent.health.watcher import HealthWatch
from agent.inventory.collector import InventoryCollector
from agent.inventory.node_files import NodeFiles, NodePaths
from agent.inventory.publisher import FeaturePublisher
from agent.problems.condition import DegradedConditionWriter
from agent.problems.registry import ProblemRegistry
from api.foreign.nodefeature import AGENT_INSTANCES
from api.names import NodeName
from api.nodefiles.node_devices_file import NodeDevices
from tests.support.agent_api import AgentApi
from tests.support.fake_driver import H100_PROFILES, Device, FakeDriver, a_device
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from agent.driver.port import PartitionDriver

FEATURE = "gpu-control-plane-agent-n1"
FIRST, SECOND = "0000:17:00.0", "0000:18:00.0"


def two_devices() -> tuple[Device, Device]:
    return (
        a_device("GPU-1", address=FIRST, minor=0, profiles=H100_PROFILES),
        a_device("GPU-2", address=SECOND, minor=1, profiles=H100_PROFILES),
    )


class FakeNodeFiles:
    """What the kernel and the driver's installer leave on a node."""

    def __init__(self, folder: Path) -> None:
        self.paths = NodePaths(
            sysfs=folder / "sys",
            proc=folder / "proc",
            dev=folder / "dev",
            driver_root=folder / "root",
            run_directory=folder / "run",
            cdi_directory=folder / "cdi",
        )
        self.functions = self.paths.sysfs / "bus" / "pci" / "devices"
        self.devices_path = folder / "run" / "cards.json"
        self.cdi_path = folder / "cdi" / "gpu.deckhouse.io-gpu.json"
        for path in (self.paths.proc, self.paths.dev, self.paths.driver_root):
            path.mkdir(parents=True)
        libraries = self.paths.driver_root / "usr/lib64"
        libraries.mkdir(parents=True)
        (libraries / "libcuda.so.1").write_text("a library")

    def add_function(self, address: str, *, driver: str | None = "nvidia") -> None:
        function = self.functions / address
        function.mkdir(parents=True)
        for name, text in {
            "vendor": "0x10de",
            "device": "0x2335",
            "class": "0x030200",
            "numa_node": "0",
        }.items():
            (function / name).write_text(f"{text}\n")
        if driver is not None:
            (function / "driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")

    def remove_function(self, address: str) -> None:
        function = self.functions / address
        for path in function.iterdir():
            path.unlink()
        function.rmdir()

    def make_device(self, name: str) -> None:
        path = self.paths.dev / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/dev/null")

    def devices(self) -> NodeDevices:
        return msgspec.json.decode(self.devices_path.read_bytes(), type=NodeDevices)

    def cdi(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.cdi_path.read_bytes())
        return found

    def versions(self) -> tuple[object, ...]:
        """Which versions of both files there are."""
        found = [path.stat() for path in (self.devices_path, self.cdi_path)]
        return tuple((item.st_ino, item.st_mtime_ns) for item in found)


class InventoryNode:
    """The parts, wired as the agent wires them."""

    def __init__(
        self,
        folder: Path,
        *devices: Device,
        is_on_bus: bool = True,
        api: Any = None,
        clock: Any = None,
        asked: "Callable[[InventoryNode], PartitionDriver] | None" = None,
        publisher: Any = None,
        namespace: str = "gpu",
        **ports: Any,
    ) -> None:
        """`asked` makes the driver in the place of the fake; `ports` are those of `NodeFiles`."""
        self.files = FakeNodeFiles(folder)
        self.driver = FakeDriver(*devices)
        self.asked: PartitionDriver = self.driver if asked is None else asked(self)
        self.api: Any = AgentApi() if api is None else api
        if api is None:
            self.api.add_node("n1")
            self.api.add_inventory("n1")
        self.clock = LoopClock() if clock is None else clock
        self._publisher = publisher
        self._namespace = namespace
        self._ports = ports
        self.files.make_device("nvidiactl")
        for device in devices:
            self.files.make_device(f"nvidia{device.minor}")
            if is_on_bus:
                self.files.add_function(device.address)
        self.begin()

    def begin(self) -> None:
        """Create the parts, as a restart of the process does."""
        self.problems = ProblemRegistry()
        self.device_files = NodeFiles(self.files.paths, self.problems, **self._ports)
        tracker = HealthTracker()
        if (published_devices := self.device_files.published_devices()) is not None:
            tracker.restore(published_devices, 0.0)
        self.watch = HealthWatch(self.asked, tracker, self.clock, on_change=self._on_health_change)
        rng = random.Random(5)
        self.publisher = FeaturePublisher(
            self.api,
            self.problems,
            self.clock,
            node=NodeName("n1"),
            namespace=self._namespace,
            rng=rng,
        )
        self.condition = DegradedConditionWriter(
            self.api, self.problems, self.clock, node=NodeName("n1"), rng=rng
        )
        self.inventory = InventoryCollector(
            self.asked,
            health=self.watch,
            files=self.device_files,
            publisher=self._publisher or self.publisher,
            problems=self.problems,
            paths=self.files.paths,
        )

    def bound(self) -> frozenset[str]:
        """What the driver is told of the bus."""
        return self.inventory.bound()

    def _on_health_change(self) -> None:
        self.inventory.health_changed()

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[InventoryNode]":
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(running)
                for running in (
                    self.inventory.run(),
                    self.watch.run(),
                    self.publisher.run(),
                    self.condition.run(),
                )
            ]
            await asyncio.sleep(0.5)
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()

    def published(self) -> Mapping[str, Mapping[str, str]]:
        """Address -> attributes."""
        if not self.api.has_feature(FEATURE):
            return {}
        elements = self.api.feature(FEATURE)["spec"]["features"]["instances"][AGENT_INSTANCES][
            "elements"
        ]
        return {element["attributes"]["pci.address"]: element["attributes"] for element in elements}

    def condition_reported(self) -> str:
        (one,) = self.api.objects["gpunodeinventories", "n1"]["status"]["conditions"]
        return str(one["reason"])

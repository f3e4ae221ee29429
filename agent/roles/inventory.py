"""The roles inventory, health, mig and telemetry: every part with access to the driver, and the reporters of its results."""

from typing import TYPE_CHECKING, Any, final

import structlog
from msgspec import structs

from agent.device_metrics.source import DeviceLabelSources, DeviceMetrics
from agent.driver.pci import read_devices
from agent.errors import DriverUnavailableError
from agent.files import file_identity
from agent.health.tracker import HealthTracker, HealthTrackingLimits
from agent.health.watcher import HealthWatch
from agent.inventory.collector import InventoryCollector
from agent.inventory.kubelet_settings import KubeletConfigurationReader
from agent.inventory.node_files import NodeFiles, NodePaths
from agent.inventory.publisher import FeaturePublisher
from agent.kubelet.configuration import KubeletPort
from agent.mig.dependencies import PartitionerDependencies
from agent.mig.partitioner import Partitioner
from agent.nvml.driver import NvmlDriver
from agent.plugin.numa_hints import NumaHints
from agent.problems.condition import DegradedConditionWriter
from agent.problems.file_reader import ProblemsFileReader
from agent.repair.resets import DeviceResets, ResetDependencies
from agent.roles.pod_reporters import PodReporters
from agent.settings import CDI_KIND, AgentRole
from api.kubelet.podresources import SOCKET
from api.names import RESOURCE_PREFIX
from api.nodefiles.pluginproblems import PROBLEMS_DIRECTORY
from kube.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from agent.api_cache import NodeObjects
    from agent.context import AgentContext
    from agent.driver.port import DriverSnapshot
    from agent.files import FileIdentity
    from agent.settings import AgentSettings
    from api.clock import Clock
    from api.kinds.gpunodeinventory import KubeletConfiguration

_log = structlog.get_logger()


@final
class InventoryRole:
    """Wires discovery, health and partitioning, and the reporters of pods; nothing is read before their tasks run."""

    def __init__(
        self,
        dependencies: "AgentContext",
        objects: "NodeObjects | None",
        *,
        on_reading: "Callable[[DriverSnapshot | None], None]" = lambda _: None,
    ) -> None:
        """Create the parts.

        Args:
            dependencies: of all roles.
            objects: of the node; set with the role mig.
            on_reading: called with the last snapshot after each reading of the driver.
        """
        settings, clock = dependencies.settings, dependencies.clock
        self._dependencies = dependencies
        self._objects = objects
        paths = _paths(settings)
        files = NodeFiles(paths, dependencies.problems)
        self._driver = _driver(settings, clock)
        tracker = HealthTracker(HealthTrackingLimits(xid_actions=settings.xid_actions))
        if (published_devices := files.published_devices()) is not None:
            tracker.restore(published_devices, clock.monotonic())
        self.health = HealthWatch(self._driver, tracker, clock, on_change=self._health_changed)
        self._publisher = FeaturePublisher(
            dependencies.client,
            dependencies.problems,
            clock,
            node=dependencies.node,
            namespace=settings.namespace,
        )
        self._devices = InventoryCollector(
            self._driver,
            health=self.health,
            files=files,
            publisher=self._publisher,
            problems=dependencies.problems,
            paths=paths,
            partitioning=self._devices_being_partitioned,
            kubelet=self._kubelet_configuration,
            on_reading=on_reading,
        )
        self._kubelet = KubeletConfigurationReader(
            dependencies.client,
            KubeletPort(dependencies.connection, clock),
            clock,
            node=dependencies.node,
            problems=dependencies.problems,
            kubelet_identity=self._kubelet_process,
            on_change=self._devices.refresh,
        )
        self._numa_hints = NumaHints(
            dependencies.kubelet, is_of_a_pool=self._is_of_a_pool, on_change=self._devices.refresh
        )
        self._condition = DegradedConditionWriter(
            dependencies.client, dependencies.problems, clock, node=dependencies.node
        )
        self._problems_reader = ProblemsFileReader(
            settings.run_directory / PROBLEMS_DIRECTORY, dependencies.problems, clock
        )
        self._pods = PodReporters(
            dependencies, is_of_a_pool=self._is_of_a_pool, kubelet_identity=self._kubelet_process
        )
        self._partitioner = self._build_partitioner()
        self._resets = self._build_resets()
        self.device_metrics = self._build_metrics()
        """The page of the devices' metrics; None without the role telemetry."""

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        tasks: dict[str, Coroutine[Any, Any, object]] = {
            "inventory": self._devices.run(),
            "kubelet": self._kubelet.run(),
            "kubelet.numa": self._numa_hints.run(),
            "features": self._publisher.run(),
            "condition": self._condition.run(),
            "plugin.problems": self._problems_reader.run(),
            **self._pods.tasks(),
        }
        if AgentRole.HEALTH in self._dependencies.settings.roles:
            tasks["health"] = self.health.run()
        if self.device_metrics is not None:
            tasks["device.metrics"] = self.device_metrics.run()
        if self._partitioner is not None:
            tasks["mig"] = self._partitioner.run()
        if self._resets is not None:
            tasks["resets"] = self._resets.run()
        return tasks

    async def close(self) -> None:
        """Close the driver; one that hangs is closed by the end of the process."""
        self._pods.close()
        try:
            await self._driver.close()
        except DriverUnavailableError as error:
            _log.warning("driver not closed", error=one_line(str(error)))

    def _kubelet_process(self) -> "FileIdentity | None":
        return file_identity(self._dependencies.settings.pod_resources_directory / SOCKET)

    def _kubelet_configuration(self) -> "KubeletConfiguration | None":
        configuration, aligned = self._kubelet.configuration, self._numa_hints.aligned
        return configuration and structs.replace(configuration, aligned_resources=list(aligned))

    def _health_changed(self) -> None:
        self._devices.health_changed()

    def _is_of_a_pool(self, resource: str) -> bool:
        if resource.startswith(RESOURCE_PREFIX):
            return True
        return self._objects is not None and self._objects.is_of_a_pool(resource)

    def _devices_being_partitioned(self) -> "Collection[str]":
        return self._partitioner.partitioning if self._partitioner is not None else ()

    def _build_partitioner(self) -> Partitioner | None:
        if AgentRole.MIG not in self._dependencies.settings.roles or self._objects is None:
            return None
        partitioner = Partitioner(
            self._driver,
            PartitionerDependencies(
                objects=self._objects,
                health=self.health.health,
                in_use=self._pods.units_in_use,
                events=self._dependencies.events,
                problems=self._dependencies.problems,
                after_change=self._devices.trigger,
            ),
            self._dependencies.clock,
        )
        self._objects.subscribe(partitioner.trigger)
        return partitioner

    def _build_resets(self) -> DeviceResets | None:
        if self._partitioner is None or self._objects is None:
            return None
        resets = DeviceResets(
            self._driver,
            ResetDependencies(
                objects=self._objects,
                health=self.health,
                in_use=self._pods.units_in_use,
                events=self._dependencies.events,
            ),
        )
        self._objects.subscribe(resets.trigger)
        return resets

    def _build_metrics(self) -> DeviceMetrics | None:
        settings = self._dependencies.settings
        if AgentRole.TELEMETRY not in settings.roles:
            return None
        labels = DeviceLabelSources(
            allocations=lambda: (
                entry
                for entry in self._pods.allocations.entries()
                if self._is_of_a_pool(entry.resource)
            ),
            pools=self._pools_of_devices,
            resources=self._pools_of_resources,
            last_xid=self.health.last_xid if AgentRole.HEALTH in settings.roles else None,
        )
        return DeviceMetrics(
            self._driver,
            labels,
            self._dependencies.clock,
            processes=self._pods.process_sources(),
            node=settings.node,
        )

    def _pools_of_devices(self) -> dict[str, str]:
        """Return UUID -> pool."""
        return {
            device.status.uuid: device.status.pool_ref.name
            for device in (self._objects.devices() if self._objects is not None else ())
            if device.status.pool_ref is not None
        }

    def _pools_of_resources(self) -> dict[str, str]:
        """Return resource -> pool."""
        pools = self._objects.pools() if self._objects is not None else {}
        return {resource: name for name, pool in pools.items() for resource in pool.resources}


def _paths(settings: "AgentSettings") -> NodePaths:
    return NodePaths(
        sysfs=settings.sysfs,
        proc=settings.procfs,
        dev=settings.dev_root,
        driver_root=settings.driver_root,
        driver_libraries=settings.driver_libraries,
        run_directory=settings.run_directory,
        cdi_directory=settings.cdi_directory,
        cdi_kind=CDI_KIND,
    )


def _driver(settings: "AgentSettings", clock: "Clock") -> NvmlDriver:
    return NvmlDriver(
        clock,
        driver_root=settings.driver_root,
        driver_libraries=settings.driver_libraries,
        bus=lambda: frozenset(
            f"{device.address} {device.driver}" for device in read_devices(settings.sysfs)
        ),
    )

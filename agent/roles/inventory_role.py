"""The roles inventory, health, mig and telemetry: every part with access to the driver, and the reporters of its results."""

from functools import partial
from typing import TYPE_CHECKING, Any, final

import structlog
from msgspec import structs

from agent.allocations.reporter import AllocationReporter
from agent.allocations.unit_holders import UnitHolders
from agent.device_metrics.process_pods import ProcessPods
from agent.device_metrics.process_readings import ProcessSources
from agent.device_metrics.source import DeviceLabelSources, DeviceMetrics
from agent.driver.pci import read_devices
from agent.driver_processes.process_reporter import DriverProcessReporter
from agent.driver_processes.process_search import ProcessSearch
from agent.errors import DriverUnavailableError
from agent.files import file_identity
from agent.health.tracker import HealthTracker, HealthTrackingTerms
from agent.health.watcher import HealthWatch
from agent.inventory.collector import InventoryCollector
from agent.inventory.kubelet_settings import KubeletConfigurationReader
from agent.inventory.node_files import NodeFiles, NodePaths, recall_health
from agent.inventory.publisher import FeaturePublisher
from agent.kubelet.configuration import KubeletPort
from agent.kubelet.pod_processes import pods_of_processes, pods_with_processes
from agent.mig.dependencies import PartitionerDependencies
from agent.mig.partitioner import Partitioner
from agent.nvml.driver import NvmlDriver
from agent.plugin.numa_hints import NumaHints
from agent.problems.condition import DegradedConditionWriter
from agent.problems.file_reader import ProblemsFileReader
from agent.settings import CDI_KIND, AgentRole
from api.kubelet.podresources import SOCKET
from api.names import RESOURCE_PREFIX
from api.nodefiles.node_pods_file import PODS_FILE
from api.nodefiles.pluginproblems import PROBLEMS_DIRECTORY
from kube.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from agent.api_cache import NodeObjects
    from agent.context import AgentContext
    from agent.driver.port import DriverSnapshot
    from agent.files import FileIdentity
    from api.kinds.gpunodeinventory import KubeletConfiguration

_log = structlog.get_logger()


@final
class InventoryRole:
    """Wires discovery, health, partitioning and the report of allocations."""

    def __init__(self, dependencies: "AgentContext", objects: "NodeObjects | None") -> None:
        """`objects` is set with the role mig."""
        settings = dependencies.settings
        self._dependencies = dependencies
        self._objects = objects
        paths = NodePaths(
            sysfs=settings.sysfs,
            proc=settings.procfs,
            dev=settings.dev_root,
            driver_root=settings.driver_root,
            driver_libraries=settings.driver_libraries,
            run_directory=settings.run_directory,
            cdi_directory=settings.cdi_directory,
            cdi_kind=CDI_KIND,
        )
        self._driver = NvmlDriver(
            dependencies.clock,
            library=settings.nvml_library,
            driver_root=settings.driver_root,
            driver_libraries=settings.driver_libraries,
            bus=lambda: frozenset(
                f"{device.address} {device.driver}" for device in read_devices(settings.sysfs)
            ),
        )
        files = NodeFiles(paths, dependencies.problems)
        ignored = settings.ignored_xids
        terms = (
            HealthTrackingTerms() if ignored is None else HealthTrackingTerms(ignored_xids=ignored)
        )
        tracker = HealthTracker(terms)
        recall_health(files.remembered(), tracker, dependencies.clock.monotonic())
        self.health = HealthWatch(
            self._driver, tracker, dependencies.clock, on_change=self._health_changed
        )
        self._publisher = FeaturePublisher(
            dependencies.client,
            dependencies.problems,
            dependencies.clock,
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
        )
        self._kubelet = KubeletConfigurationReader(
            dependencies.client,
            KubeletPort(dependencies.connection, dependencies.clock),
            dependencies.clock,
            node=dependencies.node,
            problems=dependencies.problems,
            incarnation=self._kubelet_process,
        )
        self._kubelet.on_change = self._devices.settle
        self._numa_hints = NumaHints(dependencies.kubelet, is_of_a_pool=self._is_of_a_pool)
        self._numa_hints.on_change = self._devices.settle
        self._devices.kubelet = self._kubelet_configuration
        self._condition = DegradedConditionWriter(
            dependencies.client, dependencies.problems, dependencies.clock, node=dependencies.node
        )
        self._holders = UnitHolders(
            dependencies.pods,
            partial(pods_with_processes, procfs=settings.processes),
            synced=dependencies.pod_informer.synced,
            path=settings.run_directory / PODS_FILE,
            clock=dependencies.clock,
            problems=dependencies.problems,
            is_of_a_pool=self._is_of_a_pool,
        )
        self._reporter = AllocationReporter(
            dependencies.pods,
            dependencies.kubelet,
            dependencies.client,
            synced=dependencies.pod_informer.synced,
            clock=dependencies.clock,
            node=dependencies.node,
            problems=dependencies.problems,
            is_of_a_pool=self._is_of_a_pool,
            incarnation=self._kubelet_process,
            terminated=self._holders.terminated,
        )
        self._holders.allocated_units = self._reporter.allocated_units
        self._holders.on_processes_ended = self._reporter.follow
        self._process_search = ProcessSearch(
            dependencies.clock, procfs=settings.procfs, processes=settings.processes
        )
        self._process_reporter = DriverProcessReporter(
            self._process_search,
            dependencies.pods,
            dependencies.client,
            synced=dependencies.pod_informer.synced,
            clock=dependencies.clock,
            node=dependencies.node,
            namespace=settings.namespace,
            problems=dependencies.problems,
        )
        self._problems_reader = ProblemsFileReader(
            settings.run_directory / PROBLEMS_DIRECTORY, dependencies.problems, dependencies.clock
        )
        self._partitioner: Partitioner | None = None
        if AgentRole.MIG in settings.roles and objects is not None:
            self._partitioner = Partitioner(
                self._driver,
                PartitionerDependencies(
                    objects=objects,
                    health=self.health.health,
                    in_use=self._units_in_use,
                    events=dependencies.events,
                    problems=dependencies.problems,
                    after_change=self._devices.trigger,
                ),
                dependencies.clock,
            )
            partitioner = self._partitioner
            objects.subscribe(partitioner.trigger)
            self._devices.partitioning = lambda: partitioner.partitioning

        self.device_metrics: DeviceMetrics | None = None
        """The page of the devices' metrics; None without the role telemetry."""
        if AgentRole.TELEMETRY in settings.roles:
            self.device_metrics = DeviceMetrics(
                self._driver,
                self._label_sources(),
                dependencies.clock,
                processes=self._process_sources(),
                node=settings.node,
            )

    @property
    def look(self) -> "DriverSnapshot | None":
        """The driver's last answer; None without a driver."""
        return self._devices.look

    def on_look(self, call: "Callable[[], None]") -> None:
        """Have it called after each reading of the driver."""
        self._devices.on_look = call

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        tasks: dict[str, Coroutine[Any, Any, object]] = {
            "inventory": self._devices.run(),
            "kubelet": self._kubelet.run(),
            "kubelet.numa": self._numa_hints.run(),
            "features": self._publisher.run(),
            "condition": self._condition.run(),
            "occupants": self._holders.run(),
            "allocations": self._reporter.run(),
            "driver.processes": self._process_reporter.run(),
            "plugin.problems": self._problems_reader.run(),
        }
        if AgentRole.HEALTH in self._dependencies.settings.roles:
            tasks["health"] = self.health.run()
        if self.device_metrics is not None:
            tasks["device.metrics"] = self.device_metrics.run()
        if self._partitioner is not None:
            tasks["mig"] = self._partitioner.run()
        return tasks

    async def close(self) -> None:
        """Close the driver; one that hangs is closed by the end of the process."""
        self._process_search.close()
        try:
            await self._driver.close()
        except DriverUnavailableError as error:
            _log.warning("driver not closed", error=one_line(str(error)))

    def _kubelet_process(self) -> "FileIdentity | None":
        return file_identity(self._dependencies.settings.pod_resources_directory / SOCKET)

    def _kubelet_configuration(self) -> "KubeletConfiguration | None":
        known, aligned = self._kubelet.configuration, self._numa_hints.aligned
        return known and structs.replace(known, aligned_resources=list(aligned))

    def _health_changed(self) -> None:
        self._devices.health_changed()

    def _is_of_a_pool(self, resource: str) -> bool:
        if resource.startswith(RESOURCE_PREFIX):
            return True
        return self._objects is not None and self._objects.is_of_a_pool(resource)

    def _label_sources(self) -> DeviceLabelSources:
        follows_events = AgentRole.HEALTH in self._dependencies.settings.roles
        return DeviceLabelSources(
            allocations=self._reporter.entries,
            pools=self._pools_of_devices,
            resources=self._pools_of_resources,
            xids=(lambda: self.health.xids) if follows_events else None,
        )

    def _process_sources(self) -> ProcessSources:
        settings = self._dependencies.settings
        pods = ProcessPods(
            self._dependencies.pods,
            self._reporter,
            self._dependencies.events,
            synced=self._dependencies.pod_informer.synced,
            namespace=settings.namespace,
            is_of_a_pool=self._is_of_a_pool,
        )
        return ProcessSources(
            owners_of=partial(pods_of_processes, procfs=settings.processes),
            pod_of=pods.pod_of,
            report=pods.report,
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
        return {pool.resource_name: name for name, pool in pools.items()}

    def _units_in_use(self) -> "Collection[str] | None":
        """Return the units that live pods are assigned or were allocated; None while that is unknown."""
        given = self._reporter.units_in_use()
        if given is None or not self._dependencies.pod_informer.synced.is_set():
            return None
        assigned = {
            unit
            for pod in self._dependencies.pods.all()
            if not pod.is_ended
            for units in (pod.assigned or {}).values()
            for unit in units
        }
        return assigned | given

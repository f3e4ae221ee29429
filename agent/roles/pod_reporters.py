"""The reporters of what the node's pods use: units that kubelet allocated, and the driver's open files."""

from functools import partial
from typing import TYPE_CHECKING, Any, final

from agent.allocations.reporter import AllocationReporter
from agent.allocations.unit_holders import UnitHolders
from agent.device_metrics.process_pods import ProcessPods
from agent.device_metrics.process_readings import ProcessSources
from agent.driver_processes.process_reporter import DriverProcessReporter
from agent.driver_processes.process_search import ProcessSearch
from agent.kubelet.pod_processes import pods_of_processes, pods_with_processes
from api.driver_upgrade import is_of_devices
from api.nodefiles.node_pods_file import PODS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from agent.context import AgentContext
    from agent.files import FileIdentity
    from api.names import PodUid


@final
class PodReporters:
    """Wires the reporters; nothing is read before their tasks run."""

    def __init__(
        self,
        dependencies: "AgentContext",
        *,
        is_of_a_pool: "Callable[[str], bool]",
        kubelet_identity: "Callable[[], FileIdentity | None]",
    ) -> None:
        """`kubelet_identity` returns another value for another process of kubelet."""
        settings = dependencies.settings
        self._dependencies = dependencies
        self._is_of_a_pool = is_of_a_pool
        self.allocations = AllocationReporter(
            dependencies.pods,
            dependencies.kubelet,
            dependencies.client,
            synced=dependencies.pod_informer.synced,
            clock=dependencies.clock,
            node=dependencies.node,
            problems=dependencies.problems,
            is_reported=lambda resource: is_of_devices(resource) or is_of_a_pool(resource),
            kubelet_identity=kubelet_identity,
            terminated=self._terminated,
        )
        self._holders = UnitHolders(
            dependencies.pods,
            partial(pods_with_processes, procfs=settings.processes),
            synced=dependencies.pod_informer.synced,
            path=settings.run_directory / PODS_FILE,
            clock=dependencies.clock,
            problems=dependencies.problems,
            is_of_a_pool=is_of_a_pool,
            allocated_units=self.allocations.allocated_units,
            on_processes_ended=self.allocations.follow,
        )
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

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        return {
            "occupants": self._holders.run(),
            "allocations": self.allocations.run(),
            "driver.processes": self._process_reporter.run(),
        }

    def close(self) -> None:
        """End the search for processes."""
        self._process_search.close()

    def process_sources(self) -> ProcessSources:
        """Return the sources for metrics of processes."""
        settings = self._dependencies.settings
        pods = ProcessPods(
            self._dependencies.pods,
            self.allocations,
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

    def units_in_use(self) -> "Collection[str] | None":
        """Return the units that live pods are assigned or were allocated; None while that is unknown."""
        given = self.allocations.units_in_use()
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

    def _terminated(self) -> "Collection[PodUid]":
        return self._holders.terminated()

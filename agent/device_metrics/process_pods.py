"""The pods of processes on devices, as the agent knows them, and the Event on one that was not given its device."""

from typing import TYPE_CHECKING, Final, final

import structlog

from agent.device_metrics.unaccounted_processes import ProcessPod
from kube.event_recorder import ObjectReference
from kube.resources import PODS
from pool.model import ContainerRole
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from agent.allocations.reporter import AllocationReporter
    from agent.device_metrics.unaccounted_processes import UnaccountedDevice
    from agent.kubelet.node_pods import NodePod, NodePods
    from api.names import PodUid
    from kube.event_recorder import EventRecorder

ACTION: Final = "CheckProcesses"

_log = structlog.get_logger()


@final
class ProcessPods:
    """Pods of the node, with and without extended resources."""

    def __init__(
        self,
        pods: "NodePods",
        reporter: "AllocationReporter",
        events: "EventRecorder",
        *,
        synced: "asyncio.Event",
        namespace: str,
        is_of_a_pool: "Callable[[str], bool]",
    ) -> None:
        """Wire the parts.

        Args:
            pods: the pods of this node, all of them.
            reporter: knows what kubelet gave.
            events: takes the Event.
            synced: set once the pods are known.
            namespace: our own, whose pods may use any device: the validator and DCGM do.
            is_of_a_pool: returns whether a resource is a pool's.
        """
        self._pods = pods
        self._reporter = reporter
        self._events = events
        self._synced = synced
        self._namespace = namespace
        self._is_of_a_pool = is_of_a_pool

    def pod_of(self, uid: "PodUid") -> ProcessPod | None:
        """Return a pod; None where it may use any device, or its devices are not known yet."""
        if not self._synced.is_set():
            return None
        pod = self._pods.get_any(uid)
        if pod is None:
            # A terminated pod, which keeps its devices as long as it has processes, or one that the API server lacks.
            return _process_pod("", "", self._reporter.allocated_units(uid))
        given, of_init = self._reporter.given_units(pod), self._units_of_init_containers(pod)
        if pod.namespace == self._namespace or given is None or of_init is None:
            return None
        return _process_pod(pod.namespace, pod.name, given | of_init)

    def report(self, found: "UnaccountedDevice") -> None:
        """Emit the Event on the pod."""
        pod = self._pods.get_any(found.uid) if found.uid is not None else None
        if pod is None:
            return
        note = (
            f"the pod has a process on device {found.unit} of pool {found.holder.pool}, which kubelet did not give to"
            f" it: request the pool's resource in place of NVIDIA_VISIBLE_DEVICES, a privileged container or a mount"
            f" of /dev"
        )
        _log.warning("process unaccounted", pod=pod.ref, uid=pod.uid, device=found.unit)
        self._events.warning(
            ObjectReference.to(PODS, pod), EventReason.PROCESS_UNACCOUNTED, note, action=ACTION
        )

    def _units_of_init_containers(self, pod: "NodePod") -> "set[str] | None":
        """Return the assigned units of init containers, which kubelet does not name; None where some are not known."""
        asking = [
            container.name
            for container in pod.containers
            if container.kind is ContainerRole.INIT
            and any(map(self._is_of_a_pool, container.counts))
        ]
        assigned = pod.assigned or {}
        if any(name not in assigned for name in asking):
            return None
        return {unit for name in asking for unit in assigned[name]}


def _process_pod(namespace: str, name: str, units: "set[str]") -> ProcessPod:
    return ProcessPod(namespace, name, frozenset(unit.partition("::")[0] for unit in units))

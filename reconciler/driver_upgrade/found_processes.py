"""What node agents find with the driver open, as facts of an upgrade: pods on the node, pods that are gone, processes in no pod. Pure."""

from dataclasses import replace
from typing import TYPE_CHECKING

from api.names import PodUid
from operands.upgrade.facts import DriverUse, HostProcess, PodOnNode, PodOwner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from api.kinds.gpunodeinventory import DriverProcess, GPUNodeInventory
    from api.names import NodeName
    from reconciler.sinks.agent_reports import AgentReports


def found_on(
    node: "NodeName", inventories: "Mapping[str, GPUNodeInventory]", agents: "AgentReports"
) -> "Sequence[DriverProcess]":
    """Return what the node's agent found last; nothing where the agent is silent.

    What a silent agent found may have ended long ago, and nothing else would ever take it back: an agent that left for an
    upgrade may not be able to come back before the next attempt.
    """
    inventory = inventories.get(node)
    if inventory is None or agents.is_silent(node):
        return ()
    return inventory.status.driver_processes or ()


def with_driver_open(
    pods: "Sequence[PodOnNode]",
    found: "Iterable[DriverProcess]",
    drivers: "Collection[PodUid]",
) -> tuple[tuple[PodOnNode, ...], tuple[HostProcess, ...]]:
    """Return the pods, with those that have the driver open as its users, and the processes in no pod.

    A pod that is not on the node any more is added as one that is over: its processes are waited for.

    Args:
        pods: on the node, but for driver pods.
        found: `status.driverProcesses` of the node's inventory.
        drivers: UIDs of driver pods, which keep no driver from being replaced.
    """
    pod_by_uid = {pod.uid: pod for pod in pods}
    mirrors = {(pod.namespace, pod.name): pod for pod in pods if pod.owner is PodOwner.MIRROR}
    processes: list[HostProcess] = []
    for item in found:
        uid = PodUid(item.uid)
        if not uid:
            processes.append(HostProcess(item.pid, item.command))
        elif uid not in drivers:
            # The cgroup of a static pod has another UID than the pod that shows it.
            pod = pod_by_uid.get(uid) or mirrors.get((item.namespace, item.pod)) or _ended_pod(item)
            pod_by_uid[pod.uid] = replace(pod, uses=pod.uses | {DriverUse.OPEN})
    return tuple(pod_by_uid.values()), tuple(processes)


def _ended_pod(process: "DriverProcess") -> PodOnNode:
    return PodOnNode(
        namespace=process.namespace or "pod",
        name=process.pod or process.uid,
        uid=PodUid(process.uid),
        is_active=False,
    )

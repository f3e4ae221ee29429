"""Why pods found no node, and why units stayed free, in a snapshot."""

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pool.placement.simulation.results import IdleCause, RefusalCause
from pool.refusal import NodeReason
from pool.what_if.exclusion import exclusion_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.names import NodeName
    from cli.simulation.pod_scheduling import PoolQuestion
    from cli.simulation.snapshot import Snapshot
    from cli.simulation.workload.free_devices import FreeDevices
    from pool.compute_resources import ComputeResources
    from pool.index.reader import IndexReader


class Shortage(IntEnum):
    """The first thing that a node lacks for a pod, in this order."""

    ACCESS = 0
    """Readiness, labels or tolerated taints."""
    UNITS = 1
    TOPOLOGY = 2
    CPU = 3
    MEMORY = 4
    PODS = 5
    NOTHING = 6


_APART: Final = frozenset(
    {
        NodeReason.NOT_ALIGNED,
        NodeReason.CANNOT_ALIGN,
        NodeReason.KUBELET_WOULD_REJECT,
        NodeReason.KUBELET_REJECTS,
        NodeReason.KUBELET_CHOOSES,
    }
)
_REFUSALS: Final = {
    Shortage.ACCESS: RefusalCause.EXCLUDED,
    Shortage.UNITS: RefusalCause.DEVICES,
    Shortage.TOPOLOGY: RefusalCause.TOPOLOGY,
    Shortage.CPU: RefusalCause.CPU,
    Shortage.MEMORY: RefusalCause.MEMORY,
    Shortage.PODS: RefusalCause.PODS,
    Shortage.NOTHING: RefusalCause.DEVICES,
}
_IDLE: Final = {
    Shortage.ACCESS: IdleCause.EXCLUDED,
    Shortage.UNITS: IdleCause.HOLE,
    Shortage.TOPOLOGY: IdleCause.TOPOLOGY,
    Shortage.CPU: IdleCause.CPU,
    Shortage.MEMORY: IdleCause.MEMORY,
    Shortage.PODS: IdleCause.PODS,
    Shortage.NOTHING: IdleCause.HOLE,
}


def shortage_of(question: "PoolQuestion", node: "NodeName", snapshot: "Snapshot") -> Shortage:
    """Return what a node of the pool lacks for a pod."""
    index = snapshot.index
    facts = index.nodes.get(node)
    if facts is None or exclusion_of(facts, question.pod.constraints):
        return Shortage.ACCESS
    refusal = index.view(question.pool.name, question.demand).refusals.get(node)
    if refusal is not None:
        return Shortage.TOPOLOGY if refusal.reason in _APART else Shortage.UNITS
    return shortage_of_resources(index, node, question.pod.facts.requests)


def shortage_of_resources(
    index: "IndexReader", node: "NodeName", requested: "ComputeResources"
) -> Shortage:
    """Return which resource of a node does not suffice; one of unknown size has all."""
    cpu, memory = index.free_cpu_and_memory(node)
    if cpu is not None and cpu < requested.cpu_milli:
        return Shortage.CPU
    if memory is not None and memory < requested.memory_mib:
        return Shortage.MEMORY
    places = index.free_pods(node)
    return Shortage.PODS if places is not None and places < 1 else Shortage.NOTHING


def cause_of(shortage: Shortage) -> RefusalCause:
    """Return the cause of a refusal by what the nearest node lacks."""
    return _REFUSALS[shortage]


def idle_causes(
    snapshot: "Snapshot", devices: "FreeDevices", pending: "Sequence[PoolQuestion]"
) -> dict[IdleCause, int]:
    """Return the free milli by what the pending pod that is nearest to fitting lacks there.

    Args:
        snapshot: at the end.
        devices: its devices.
        pending: a pod of each kind that was never placed.
    """
    milli: Counter[IdleCause] = Counter()
    for node, pools in devices.nodes.items():
        for pool in pools:
            free = devices.free_milli_on(node, pool.name)
            if not free:
                continue
            shortages = [
                shortage_of(question, node, snapshot)
                for question in pending
                if question.pool.name == pool.name
            ]
            milli[_IDLE[max(shortages)] if shortages else IdleCause.NOT_ASKED] += free
    return dict(milli)

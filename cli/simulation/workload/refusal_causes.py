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


class Lack(IntEnum):
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
    Lack.ACCESS: RefusalCause.EXCLUDED,
    Lack.UNITS: RefusalCause.DEVICES,
    Lack.TOPOLOGY: RefusalCause.TOPOLOGY,
    Lack.CPU: RefusalCause.CPU,
    Lack.MEMORY: RefusalCause.MEMORY,
    Lack.PODS: RefusalCause.PODS,
    Lack.NOTHING: RefusalCause.DEVICES,
}
_IDLE: Final = {
    Lack.ACCESS: IdleCause.EXCLUDED,
    Lack.UNITS: IdleCause.HOLE,
    Lack.TOPOLOGY: IdleCause.TOPOLOGY,
    Lack.CPU: IdleCause.CPU,
    Lack.MEMORY: IdleCause.MEMORY,
    Lack.PODS: IdleCause.PODS,
    Lack.NOTHING: IdleCause.HOLE,
}


def lack_of(question: "PoolQuestion", node: "NodeName", snapshot: "Snapshot") -> Lack:
    """Return what a node of the pool lacks for a pod."""
    index = snapshot.index
    facts = index.nodes.get(node)
    if facts is None or exclusion_of(facts, question.pod.constraints):
        return Lack.ACCESS
    refusal = index.view(question.pool.name, question.demand).refusals.get(node)
    if refusal is not None:
        return Lack.TOPOLOGY if refusal.reason in _APART else Lack.UNITS
    return lack_of_resources(index, node, question.pod.facts.requests)


def lack_of_resources(index: "IndexReader", node: "NodeName", wanted: "ComputeResources") -> Lack:
    """Return which resource of a node does not suffice; one of unknown size has all."""
    cpu, memory = index.free_cpu_and_memory(node)
    if cpu is not None and cpu < wanted.cpu_milli:
        return Lack.CPU
    if memory is not None and memory < wanted.memory_mib:
        return Lack.MEMORY
    places = index.free_pods(node)
    return Lack.PODS if places is not None and places < 1 else Lack.NOTHING


def cause_of(lack: Lack) -> RefusalCause:
    """Return the cause of a refusal by what the nearest node lacks."""
    return _REFUSALS[lack]


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
            lacks = [
                lack_of(question, node, snapshot)
                for question in pending
                if question.pool.name == pool.name
            ]
            milli[_IDLE[max(lacks)] if lacks else IdleCause.NOT_ASKED] += free
    return dict(milli)

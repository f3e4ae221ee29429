"""What would have to change for a pod that is not placed: each proposal is tried on the snapshot before it is made."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.pods.access import may_use
from api.kinds.gpupool import AllocationMode, DeviceTopology, SlicePlacement
from api.names import NodeName
from cli.simulation.answers import (
    EndingPod,
    EndingPods,
    FewerUnits,
    NewNode,
    OtherPool,
    Proposals,
    Verdict,
)
from cli.simulation.pod_decision import decide
from cli.simulation.pod_scheduling import question_of, reachable, request_of
from pool.demand import demand_of
from pool.model import Demand
from pool.placement.same_device import is_valid_size
from pool.what_if.evictions import cheapest_eviction, fits_when_empty
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from api.names import PodUid
    from cli.simulation.answers import PodDecision
    from cli.simulation.pod_file import AskedPod
    from cli.simulation.pod_scheduling import PodCreator, PoolQuestion
    from cli.simulation.snapshot import Snapshot
    from pool.model import ContainerDemand, PoolFacts

_MOST_POOLS: Final = 32
"""Other pools that are tried."""
_MOST_SIZES: Final = 16
"""Sizes that are tried one by one, as many as a node has devices; among more, by halving."""
_OF_SIZE: Final = frozenset(
    {RefusalReason.EXCEEDS_CAPACITY.value, RefusalReason.INSUFFICIENT_CAPACITY.value}
)
_OF_POOL: Final = _OF_SIZE | {
    RefusalReason.POOL_NOT_FOUND.value,
    RefusalReason.POOL_TERMINATING.value,
    RefusalReason.POOL_IN_MAINTENANCE.value,
    RefusalReason.ACCESS_DENIED.value,
}
"""Denials that another pool would not give; the cure of any other one is in its text."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Tries changed pods on the snapshot."""

    asked: "AskedPod"
    demand: Demand
    snapshot: "Snapshot"
    caller: "PodCreator"

    def node_of(self, pod: "AskedPod") -> "NodeName | None":
        """Return the node that takes the pod now."""
        decision = decide(pod, self.snapshot, self.caller)
        return NodeName(decision.placement.node) if decision.placement is not None else None

    @property
    def container(self) -> "ContainerDemand | None":
        """The container that asks for units; None where several do."""
        return self.demand.containers[0] if len(self.demand.containers) == 1 else None


def proposals_for(
    asked: "AskedPod", decision: "PodDecision", snapshot: "Snapshot", *, caller: "PodCreator"
) -> Proposals:
    """Return the changes after which the pod, or the changed pod, would be placed now."""
    demand = demand_of(asked.pod.spec, asked.namespace)
    if not isinstance(demand, Demand) or decision.verdict is Verdict.PLACED:
        return Proposals()
    if decision.reason is not None and decision.reason not in _OF_POOL:
        return Proposals()
    trial = _Trial(asked, demand, snapshot, caller)
    question = question_of(asked, snapshot)
    if question is None or (decision.reason is not None and decision.reason not in _OF_SIZE):
        return Proposals(other_pools=_other_pools(trial))
    return Proposals(
        fewer_units=_fewer_units(trial, question.pool),
        other_pools=_other_pools(trial),
        ending_pods=_ending_pods(question, snapshot),
        new_node=_new_node(question, snapshot),
    )


def _fewer_units(trial: _Trial, pool: "PoolFacts") -> FewerUnits | None:
    """Return the largest smaller size that fits now."""
    container = trial.container
    if container is None:
        return None
    free = trial.snapshot.index.state(pool.name).largest_free()
    sizes = _sizes_below(container.units, pool, most=free)
    for units in _promising(trial, sizes):
        node = _node_of_size(trial, units)
        if node is not None:
            return FewerUnits(units=units, node=node)
    return None


def _promising(trial: _Trial, sizes: "Sequence[int]") -> "Sequence[int]":
    """Return the sizes that are tried one by one, largest first."""
    if len(sizes) <= _MOST_SIZES:
        return sizes
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if _node_of_size(trial, sizes[middle]) is not None:
            high = middle
        else:
            low = middle + 1
    return sizes[low : low + 1]


def _node_of_size(trial: _Trial, units: int) -> NodeName | None:
    container, resource = trial.container, trial.demand.resource
    if container is None:
        return None
    changed = trial.asked.asking(container.name, resource, units, instead_of=resource)
    return trial.node_of(changed)


def _sizes_below(units: int, pool: "PoolFacts", *, most: int) -> "Sequence[int]":
    """Return smaller sizes that a pod may ask the pool for and that are free on some node, descending."""
    sizes = range(min(units - 1, most), 0, -1)
    if pool.slice_placement is not SlicePlacement.SAME_DEVICE:
        return sizes
    return [size for size in sizes if is_valid_size(size, pool.slices_per_device)]


def _other_pools(trial: _Trial) -> list[OtherPool]:
    container, snapshot = trial.container, trial.snapshot
    if container is None:
        return []
    request = request_of(trial.asked, trial.caller)
    found: list[OtherPool] = []
    for facts in sorted(snapshot.index.pools(), key=lambda pool: pool.name)[:_MOST_POOLS]:
        pool = snapshot.catalog.pools.get(facts.name)
        if pool is None or facts.resource == trial.demand.resource:
            continue
        if not may_use(pool, request, snapshot.catalog):
            continue
        if snapshot.index.state(facts.name).largest_free() < container.units:
            continue
        changed = trial.asked.asking(
            container.name, facts.resource, container.units, instead_of=trial.demand.resource
        )
        node = trial.node_of(changed)
        if node is not None:
            found.append(
                OtherPool(
                    pool=facts.name,
                    resource=facts.resource,
                    units=container.units,
                    kind=_kind_of(facts),
                    node=node,
                    products=sorted(_products(facts, node, snapshot)),
                )
            )
    return found


def _ending_pods(question: "PoolQuestion", snapshot: "Snapshot") -> EndingPods | None:
    def has_room(node: "NodeName", without: "Collection[PodUid]") -> bool:
        free = snapshot.free.get(node)
        if free is None:
            return True
        for uid in without:
            requests = snapshot.requests.get(uid)
            free = free.with_(requests) if requests is not None else free
        return free.lacks(question.requests) is None

    found = cheapest_eviction(
        snapshot.state.reader,
        snapshot.index,
        (question.pool, question.demand),
        nodes=reachable(question, snapshot),
        has_room=has_room,
    )
    if found is None:
        return None
    own = question.asked.pod.spec.priority or 0
    node = snapshot.index.state(question.pool.name).node(found.node)
    # kube-scheduler evicts nobody where the number of free units suffices.
    is_short = node is None or node.total - node.unusable - node.used < question.demand.units
    return EndingPods(
        node=found.node,
        pods=[
            EndingPod(pod=pod.ref, units=pod.demand.units, priority=pod.priority)
            for pod in found.pods
        ],
        is_preemption=is_short and all(pod.priority < own for pod in found.pods),
    )


def _new_node(question: "PoolQuestion", snapshot: "Snapshot") -> NewNode | None:
    """Return the smallest kind of node in the pool that would take the pod if it were new."""
    index, pool = snapshot.index, question.pool
    wanted = (pool, question.demand)
    kinds: dict[object, NodeName] = {}
    for name in sorted(index.state(pool.name).devices_by_node):
        products = tuple(sorted(_products(pool, name, snapshot).items()))
        kinds.setdefault((products, index.device_rules(pool.name, name)), name)
    for name in sorted(kinds.values(), key=lambda name: len(index.devices_on(pool.name, name))):
        if fits_when_empty(index, wanted, name):
            return NewNode(like=name, devices=dict(_products(pool, name, snapshot)))
    per_device = max(1, pool.slices_per_device)
    return NewNode(
        like=None,
        devices={"": -(-question.demand.units // per_device)},
        aligned=pool.device_topology is DeviceTopology.REQUIRED,
    )


def _kind_of(pool: "PoolFacts") -> str:
    match pool.mode:
        case AllocationMode.EXCLUSIVE:
            return "whole device"
        case AllocationMode.MIG:
            return f"MIG instance {pool.mig_profile}"
        case AllocationMode.TIME_SLICE:  # pragma: no branch  # mypy proves that none is missing
            return f"time slice, {pool.slices_per_device} per device"


def _products(pool: "PoolFacts", node: "NodeName", snapshot: "Snapshot") -> Counter[str]:
    """Count the pool's devices on a node by product; "" where it is unknown."""
    found: Counter[str] = Counter()
    for entry in snapshot.index.devices_on(pool.name, node):
        device = snapshot.caches.devices.get(entry.facts.name)
        found[device.status.product if device is not None else ""] += 1
    return found

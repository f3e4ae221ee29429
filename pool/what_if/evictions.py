"""Answers to "what would have to change" for a pod that no node takes now: pods that end, a node that comes.

It only reads, and asks the same questions as preemption and bind do, so that its answers hold in the live cluster.
"""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pool.index.cache_fit import devices_for
from pool.placement.device_choice import fits
from pool.refusal import NodeReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from api.names import NodeName, PodUid
    from pool.allocation_reader import AllocationReader
    from pool.index.node_view import PoolNode
    from pool.index.reader import IndexReader
    from pool.model import Demand, PodFacts, PoolFacts

    HasCapacity = Callable[[NodeName, Collection[PodUid]], bool]
    """Says whether a node has CPU and memory for the pod once these pods have ended."""

_MOST_CHECKS: Final = 2_000
"""Sets of pods that are tried in all: some 20 ms. The first one of most nodes does."""
_MOST_SETS_OF_A_NODE: Final = 64


@dataclass(frozen=True, slots=True)
class NodeEviction:
    """Pods whose end frees capacity for another one on their node."""

    node: "NodeName"
    pods: "tuple[PodFacts, ...]"

    @property
    def cost(self) -> tuple[int, int, int, str]:
        """Sort key: fewest pods, then the lowest priority among them, then the fewest units, then the name."""
        priorities = [pod.priority for pod in self.pods]
        units = sum(pod.demand.units for pod in self.pods)
        return (len(self.pods), max(priorities, default=0), units, self.node)


def cheapest_eviction(
    reader: "AllocationReader",
    index: "IndexReader",
    requested: "tuple[PoolFacts, Demand]",
    *,
    nodes: "Iterable[NodeName]",
    has_capacity: "HasCapacity",
    uid: "PodUid | None" = None,
) -> NodeEviction | None:
    """Return the cheapest set of one node's pods whose end frees capacity for the pod; None where none would do.

    Args:
        reader: the allocation state.
        index: its index.
        requested: the pod's pool and demand.
        nodes: nodes that the pod may go to.
        has_capacity: whether a node has CPU and memory for the pod without these pods.
        uid: the pod's, whose own reservation counts as free.
    """
    own = reader.ledger.of_pod(uid) if uid is not None else None
    candidates: list[tuple[NodeEviction, list[PodFacts], int]] = []
    for node in nodes:
        pods = reader.pods_of_pool(requested[0], node)
        own_units = len(own.units) if own is not None and own.node == node else 0
        smallest = _smallest_set(index, requested, node=node, pods=pods, own_units=own_units)
        if smallest is not None:
            chosen, missing = smallest
            candidates.append((NodeEviction(node, chosen), pods, missing))
    candidates.sort(key=lambda candidate: candidate[0].cost)
    best: NodeEviction | None = None
    checks = 0
    for least, pods, missing in candidates:
        if best is not None and best.cost < (*least.cost[:2], missing, least.node):
            continue  # no set of the node is cheaper
        if checks >= _MOST_CHECKS or (best is not None and best.cost[:2] < least.cost[:2]):
            break
        for chosen in _sets_from(least, pods):
            checks += 1
            uids = [pod.uid for pod in chosen]
            if reader.fits_without(uids, least.node, requested, uid=uid) and has_capacity(
                least.node, uids
            ):
                found = NodeEviction(least.node, chosen)
                best = found if best is None or found.cost < best.cost else best
                break
    return best


def fits_when_empty(
    index: "IndexReader", requested: "tuple[PoolFacts, Demand]", node: "NodeName"
) -> bool:
    """Say whether the pod would fit the node if every unit were free and every device healthy."""
    pool, demand = requested
    devices = index.device_rules(pool.name, node)
    capacity = tuple(
        device.layout.count for device in devices_for(index, pool.name, demand, node=node)
    )
    return fits(devices, capacity, index.state_for(pool.name, demand).request_of(demand))


def is_closed(node: "PoolNode", *, is_own: bool) -> bool:
    """Say whether a node allocates no units to a pod; one that is starting does to the owner of a reservation there."""
    return node.closed is not None and not (is_own and node.closed is NodeReason.NODE_STARTING)


def _smallest_set(
    index: "IndexReader",
    requested: "tuple[PoolFacts, Demand]",
    *,
    node: "NodeName",
    pods: "list[PodFacts]",
    own_units: int,
) -> "tuple[tuple[PodFacts, ...], int] | None":
    """Return the smallest set by count of units alone, of the lowest priority, and the units that it has to free.

    None where no set suffices.
    """
    pool, demand = requested
    summary = index.state_for(pool.name, demand).node(node)
    if summary is None or not pods or is_closed(summary, is_own=own_units > 0):
        return None
    if summary.total - summary.unusable < demand.units:
        return None
    missing = max(1, demand.units - summary.free - summary.unconfirmed - own_units)
    largest_first = sorted(pods, key=lambda pod: -pod.demand.units)
    sums = itertools.accumulate(pod.demand.units for pod in largest_first)
    count = next((number for number, units in enumerate(sums, 1) if units >= missing), None)
    if count is None:
        return None
    for priority in sorted({pod.priority for pod in pods}):
        chosen = [pod for pod in largest_first if pod.priority <= priority][:count]
        if len(chosen) == count and sum(pod.demand.units for pod in chosen) >= missing:
            return tuple(chosen), missing
    return None


def _sets_from(least: NodeEviction, pods: "list[PodFacts]") -> "Iterator[tuple[PodFacts, ...]]":
    """Yield sets of at least as many pods, cheapest first; of the first ones only where there are very many."""
    left = _MOST_SETS_OF_A_NODE
    for size in range(len(least.pods), len(pods) + 1):
        sets = [
            NodeEviction(least.node, chosen)
            for chosen in itertools.islice(itertools.combinations(pods, size), left)
        ]
        yield from (item.pods for item in sorted(sets, key=lambda set_: set_.cost))
        left -= len(sets)
        if left <= 0:
            break
    yield least.pods

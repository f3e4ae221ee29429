"""Values of a pool's nodes for strategy LeastFragmentation: from its demand and its free devices to a ranking.

`rank_nodes` does all at once, for a copy of the state; the server does the same in steps.
"""

from typing import TYPE_CHECKING

from api.kinds.gpupool import Strategy
from pool.placement.fragmentation.placement_costs import PlacementCosts, usual_workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pool.index.device_index import DeviceIndex
    from pool.index.figures import IndexFigures
    from pool.index.node_view import PoolNode
    from pool.model import PoolFacts
    from pool.placement.fragmentation.target_workload import TargetWorkload


def rank_nodes(index: "DeviceIndex") -> None:
    """Rank the nodes of all pools whose strategy goes by it; again where demand or prices have changed."""
    for pool in index.pools():
        if pool.strategy is not Strategy.LEAST_FRAGMENTATION:
            continue
        state, target = index.state(pool.name), demand_on(pool, index)
        costs = None if state.ranking is None else state.ranking.costs
        is_new = costs is None or costs.target != target
        if costs is None or is_new:
            costs = PlacementCosts(pool, target)
        if costs.reprice(*free_capacity(costs, state.nodes().values())) or is_new:
            index.rank(costs)


def demand_on(pool: "PoolFacts", index: "IndexFigures") -> "TargetWorkload":
    """Return the demand on a pool: its recent one, the one named in the settings, or pods of usual sizes."""
    demand = index.demands.of(pool)
    return demand if demand.shapes else usual_workload(pool)


def free_capacity(costs: PlacementCosts, nodes: "Iterable[PoolNode]") -> tuple[int, list[int]]:
    """Return the free milli of these nodes, and their room for pods of each size of several devices."""
    free, pod_counts = 0, costs.no_capacity()
    for node in nodes:
        remaining = node.remaining
        if remaining is None or not node.is_reservable:
            continue
        free += sum(remaining.devices)
        for place, pod_count in enumerate(costs.pod_counts(remaining)):
            pod_counts[place] += pod_count
    return free, pod_counts

"""Rankings of nodes by their value, kept up to date for pools with strategy LeastFragmentation.

Tables are derived again when a part of a pool's demand is new, off the event loop: with many sizes that takes
tens of milliseconds. Until the first ones a pool goes by the free units of its nodes alone.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import Strategy
from kube.batches import steps
from pool.placement.fragmentation.placement_costs import PlacementCosts
from pool.value_ranking import demand_on, free_room

if TYPE_CHECKING:
    from pool.index.device_index import DeviceIndex
    from pool.model import PoolFacts

NODES_A_STEP: Final = 500
"""They take a millisecond."""


@final
class NodeValues:
    """Ranks the nodes of pools by their recent demand."""

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index

    async def refresh(self) -> None:
        """Rank the nodes of pools anew whose demand has changed, or the price of room for large pods."""
        for pool in self._index.pools():
            if pool.strategy is Strategy.LEAST_FRAGMENTATION:
                await self._refresh(pool)

    async def _refresh(self, pool: "PoolFacts") -> None:
        ranking = self._index.state(pool.name).ranking
        target = demand_on(pool, self._index)
        costs = None if ranking is None else ranking.costs
        is_new = costs is None or costs.target != target
        if costs is None or is_new:
            costs = await asyncio.to_thread(PlacementCosts, pool, target)
        if await self._is_repriced(costs) or is_new:
            self._index.rank(costs)

    async def _is_repriced(self, costs: PlacementCosts) -> bool:
        free, rooms = 0, costs.no_room()
        nodes = list(self._index.state(costs.pool.name).nodes().values())
        for node in steps(nodes, NODES_A_STEP):
            some_free, some_rooms = free_room(costs, node)
            free += some_free
            rooms = [a + b for a, b in zip(rooms, some_rooms, strict=True)]
            await asyncio.sleep(0)
        return costs.reprice(free, rooms)

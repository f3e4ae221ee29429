"""Nodes of a pool in the order of what a request costs of their value (`PlacementCosts`).

An order is kept by request; the nodes that changed are put into their places by its next reader.
"""

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, final

from pool.placement.fragmentation.placement_costs import STEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from api.names import NodeName
    from pool.index.node_view import PoolNode
    from pool.placement.fragmentation.placement_costs import PlacementCosts, RemainingCapacity
    from pool.placement.fragmentation.target_workload import TargetShape
    from pool.placement.unit_request import UnitRequest

    Place = tuple[int, int, NodeName]
    """Cost, units that would be left, name."""

_FEW: Final = 8
"""Stale nodes are few where so many times as many have a place: then each is moved, else all are sorted."""
_MAX_ORDERS: Final = 64
"""Requests kept at a time; one more drops the oldest."""


@final
class NodeRanking:
    """Orders of a pool's placeable nodes for one demand on the pool."""

    def __init__(self, costs: "PlacementCosts") -> None:
        self.costs = costs
        self._orders: dict[UnitRequest, _Order] = {}

    def mark(self, name: "NodeName") -> None:
        """Have a node put into its place again by the next reader."""
        for order in self._orders.values():
            order.stale.add(name)

    def order(
        self, request: "UnitRequest", nodes: "Mapping[NodeName, PoolNode]"
    ) -> "Iterator[NodeName]":
        """Yield the placeable nodes with enough free units, the cheapest first."""
        found = self._orders.get(request)
        if found is None:
            if len(self._orders) >= _MAX_ORDERS:
                del self._orders[next(iter(self._orders))]
            found = self._orders[request] = _Order(request.units, self.costs.shape(request), nodes)
        found.refresh(nodes, self.costs)
        return (name for _, _, name in found.places)

    def value_lost(self, request: "UnitRequest", remaining: "RemainingCapacity") -> int:
        """Return the milli by which the request lowers the value of what is left of a node."""
        return STEP * self.costs.lost(remaining, self.costs.shape(request))


@final
class _Order:
    def __init__(
        self, units: int, shape: "TargetShape", nodes: "Mapping[NodeName, PoolNode]"
    ) -> None:
        self._units = units
        self._shape = shape
        self._place: dict[NodeName, Place] = {}
        self.places: list[Place] = []
        self.stale: set[NodeName] = set(nodes)

    def refresh(self, nodes: "Mapping[NodeName, PoolNode]", costs: "PlacementCosts") -> None:
        """Put the stale nodes into their places, one by one where they are few."""
        if len(self.stale) * _FEW > len(self.places):
            for name in self.stale:
                self._place_of(name, nodes.get(name), costs)
            self.places = sorted(self._place.values())
        else:
            for name in self.stale:
                before = self._place.get(name)
                if before is not None:
                    del self.places[bisect_left(self.places, before)]
                after = self._place_of(name, nodes.get(name), costs)
                if after is not None:
                    insort(self.places, after)
        self.stale.clear()

    def _place_of(
        self, name: "NodeName", node: "PoolNode | None", costs: "PlacementCosts"
    ) -> "Place | None":
        """Set and return the place of a node; None where the request does not fit."""
        remaining = node.remaining if node is not None else None
        if node is None or remaining is None or not node.is_reservable or node.free < self._units:
            self._place.pop(name, None)
            return None
        cost = costs.of(remaining, self._shape)
        place = self._place[name] = cost, node.free - self._units, name
        return place

"""The settings of demand in the terms of the core."""

from typing import TYPE_CHECKING

from pool.compute_resources import resources_of
from pool.model import ContainerRole
from pool.placement.fragmentation.recent_demand import RecentDemands, RequestedShape
from pool.placement.unit_request import UnitRequest

if TYPE_CHECKING:
    from server.settings import DemandSettings


def recent_demands(settings: "DemandSettings") -> RecentDemands:
    """Return demands of which nothing is observed yet."""
    usual: dict[str, list[tuple[RequestedShape, float]]] = {}
    for item in settings.usual:
        request = UnitRequest(item.units, ((ContainerRole.MAIN, item.units),))
        shape = RequestedShape(request, resources_of(item.cpu, item.memory))
        usual.setdefault(item.pool, []).append((shape, item.pods))
    return RecentDemands(usual=usual)

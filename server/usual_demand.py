"""The settings of demand in the terms of the core."""

from typing import TYPE_CHECKING

from pool.compute_resources import resources_of
from pool.model import ContainerRole
from pool.placement.fragmentation.recent_demand import AskedShape, RecentDemands
from pool.placement.unit_request import UnitRequest

if TYPE_CHECKING:
    from server.settings import DemandSettings


def recent_demands(settings: "DemandSettings") -> RecentDemands:
    """Return demands of which nothing is observed yet."""
    usual: dict[str, list[tuple[AskedShape, float]]] = {}
    for one in settings.usual:
        request = UnitRequest(one.units, ((ContainerRole.MAIN, one.units),))
        shape = AskedShape(request, resources_of(one.cpu, one.memory))
        usual.setdefault(one.pool, []).append((shape, one.pods))
    return RecentDemands(settings.half_life_s, usual=usual)

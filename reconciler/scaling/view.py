"""The latest reading of each scaling pool: written by `pool.scaling`, read by the other controllers and `/debug/scale`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import datetime as dt

    from api.names import PodUid, PoolName
    from autoscaling import scaling_model
    from reconciler.controller_spec import ControllerContext


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PoolScaling:
    """What `pool.scaling` saw and decided at one time."""

    parameters: "scaling_model.ScalingParameters"
    supply: "scaling_model.Supply"
    plan: "scaling_model.ScalingPlan"
    observed: "tuple[scaling_model.ObservedRequest, ...]"
    history: "tuple[scaling_model.ShapeHistory, ...]"
    at: "dt.datetime"


@final
@dataclass(slots=True)
class ScalingView:
    """Pools that scale, by name."""

    pools: "dict[PoolName, PoolScaling]" = field(default_factory=dict)

    def pods_of(self, request: "scaling_model.RequestId") -> "tuple[PodUid, ...]":
        """Return the pods that a node comes for, in the order in which they get units."""
        for pool in self.pools.values():
            found = pool.plan.assigned.get(request)
            if found is not None:
                return found
        return ()

    def awaited_units(self, request: "scaling_model.RequestId") -> int:
        """Return how many units a node is to have before it is handed over; 0 where it failed, or nothing is known."""
        for pool in self.pools.values():
            for item in pool.observed:
                if item.id == request and item.shape is not None and item.is_in_flight:
                    return item.shape.units
        return 0


def scaling_view(_context: "ControllerContext") -> ScalingView:
    """Return a new view; take the term's own by `context.shared(scaling_view)`."""
    return ScalingView()

"""Keys of what has changed in a cluster since rows were made of it: a hint about what to look at, never a fact."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId


@final
@dataclass(slots=True)
class ChangedKeys:
    """Each key leaves its set when its rows are made."""

    devices: "set[DeviceName]" = field(default_factory=set)
    nodes: "set[NodeName]" = field(default_factory=set)
    """Also those of which an inventory has changed."""
    pools: "set[PoolName]" = field(default_factory=set)
    pods: "set[PodUid]" = field(default_factory=set)
    reservations: "set[ReservationId]" = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.devices or self.nodes or self.pools or self.pods or self.reservations)

"""What a node's device plugins offer: resource by resource, the units that kubelet may give out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from api.deviceplugin import OfferedDevice

if TYPE_CHECKING:
    from api.poolconfig import PoolConfig

Units = tuple[OfferedDevice, ...]
"""Of one resource, by id."""


@final
@dataclass(frozen=True, slots=True)
class Offer:
    """What one pool offers on this node."""

    pool: str
    resource: str
    units: Units


def offer_of(config: "PoolConfig", node: str) -> Offer:
    """Return what the pool offers on a node; no units where it has no card there."""
    units = [
        OfferedDevice(id=unit, is_healthy=not card.is_withheld, numa_node=card.numa_node)
        for card in config.nodes.get(node, ())
        for unit in config.units_of(card)
    ]
    return Offer(config.pool, config.resource, tuple(sorted(units, key=lambda unit: unit.id)))

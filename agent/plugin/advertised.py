"""What a node's device plugins offer: resource by resource, the units that kubelet may give out."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from api.kubelet.deviceplugin import OfferedDevice
from api.names import UnitId
from pool.units import part_of

if TYPE_CHECKING:
    from agent.plugin.cards_file import KnownCards
    from api.nodefiles.poolconfig import PoolConfig


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one count of the resource means."""

    id: str
    card: str
    """UUID of the card that it is, or is a part of."""
    is_healthy: bool = True
    """False where its card is faulted or leaves the pool: kubelet gives it to nobody any more."""
    numa_node: int | None = None

    @property
    def part(self) -> str:
        """Return the UUID of the card or MIG instance that it is, or is a slice of."""
        return part_of(UnitId(self.id))

    @property
    def listed(self) -> OfferedDevice:
        """Return it as kubelet is told."""
        return OfferedDevice(id=self.id, is_healthy=self.is_healthy, numa_node=self.numa_node)


Units = tuple[Unit, ...]
"""Of one resource, by id."""


@final
@dataclass(frozen=True, slots=True)
class AdvertisedUnits:
    """What one pool offers on this node."""

    pool: str
    resource: str
    units: Units


def offer_of(config: "PoolConfig", node: str) -> AdvertisedUnits:
    """Return what the pool offers on a node; no units where it has no card there."""
    units = [
        Unit(id=unit, card=card.uuid, is_healthy=not card.is_withheld, numa_node=card.numa_node)
        for card in config.nodes.get(node, ())
        for unit in config.units_of(card)
    ]
    return AdvertisedUnits(
        config.pool, config.resource, tuple(sorted(units, key=lambda unit: unit.id))
    )


def as_seen(units: Units, cards: "KnownCards") -> Units:
    """Return the units, unhealthy where the node knows better than whoever listed them."""
    return tuple(
        replace(unit, is_healthy=False) if unit.is_healthy and cards.fault_of(unit) else unit
        for unit in units
    )

"""Units of a device: their ids, and the slot that each takes in the device's bit masks.

A layout is derived from the pool's mode and the device's facts. Slot n is bit n, so that
"which units are free" is one `&~` and "how many" one `bit_count`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api.gpupool import AllocationMode
from api.names import UnitId

if TYPE_CHECKING:
    from pool.model import DeviceFacts, PoolFacts

_SLICE_SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a device is cut into units."""

    ids: tuple[UnitId, ...]
    """Unit ids by slot."""
    full: int = field(init=False)
    """The mask of all units."""

    def __post_init__(self) -> None:
        """Keep what every recount needs."""
        object.__setattr__(self, "full", (1 << len(self.ids)) - 1)

    @property
    def count(self) -> int:
        """Return the number of units."""
        return len(self.ids)

    def mask_of(self, unit: UnitId) -> int:
        """Return the unit's bit; all bits when this card has no such unit.

        A pod that was given the card in another cut (a whole card before it was sliced) holds an
        unknown part of it, so nothing of the card may be given out until that pod ends.
        """
        try:
            return 1 << self.ids.index(unit)
        except ValueError:
            return self.full


NO_UNITS = Layout(())


def layout_of(device: "DeviceFacts", pool: "PoolFacts | None") -> Layout:
    """Return the units of a device in its pool; none without a pool or a UUID."""
    if pool is None or device.pool != pool.name or not device.uuid:
        return NO_UNITS
    match pool.mode:
        case AllocationMode.EXCLUSIVE:
            return Layout((UnitId(device.uuid),))
        case AllocationMode.TIME_SLICE:
            slices = range(pool.slices_per_device)
            return Layout(tuple(UnitId(f"{device.uuid}{_SLICE_SEPARATOR}{n}") for n in slices))
        case AllocationMode.MIG:  # pragma: no branch  # mypy proves that none is missing
            uuids = {
                uuid
                for profile, uuid in device.mig_instances
                if profile == pool.mig_profile and uuid
            }
            return Layout(tuple(UnitId(uuid) for uuid in sorted(uuids)))


def part_of(unit: UnitId) -> str:
    """Return the UUID of the card or MIG instance that the unit is, or is a slice of."""
    return unit.partition(_SLICE_SEPARATOR)[0]

"""Layout of a device: its unit ids, and the slot of each in the device's bit masks.

A layout follows from the pool's mode and the device's facts. Slot n is bit n: the free units are one `&~`,
their number is one `bit_count`.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import AllocationMode
from api.mig.layout import instances_of
from api.mig.profile import compute_slices
from api.names import MOST_SLICES_READ, UnitId
from api.units import SLICE_SEPARATOR, slices_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.model import DeviceFacts, PoolFacts

_MOST_COMPUTE_SLICES: Final = 7
_FEW: Final = 16
"""Units among which a search is quicker than reading a number."""
_MOST_DIGITS: Final = 4
"""Most digits of a slice's number; a unit of a foreign Binding may end in anything."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Units of a device."""

    ids: tuple[UnitId, ...]
    """Unit ids by slot."""
    missing: int = 0
    """Units that the device should have beyond these, by the pool's allocation."""
    differs: bool = False
    """Whether its partitions are not those of the pool's allocation: no unit of it is allocated, so that its agent can
    partition it again once nothing runs on it."""
    profiles: tuple[str, ...] = ()
    """MIG profiles by slot, where the pool has several."""
    full: int = -1
    """Mask of all units; a part of them in the layout of one profile."""
    count: int = field(init=False)
    """Units in the mask; each change of a node adds them up."""

    def __post_init__(self) -> None:
        if self.full < 0:
            object.__setattr__(self, "full", (1 << len(self.ids)) - 1)
        object.__setattr__(self, "count", self.full.bit_count())

    def of_profile(self, profile: str) -> "Layout":
        """Return the layout with the units of one profile only, in their slots."""
        slots = (1 << slot for slot, name in enumerate(self.profiles) if name == profile)
        return replace(self, full=sum(slots))

    def has_any(self, units: "Sequence[UnitId]") -> bool:
        """Say whether one of the units of a device's pods is of this layout: of that of one profile some are not."""
        return self.count == len(self.ids) or bool(self.mask_of(units) & self.full)

    def mask_of(self, units: "Sequence[UnitId]") -> int:
        """Return the bits of the units; all bits when the device has no such unit.

        A pod from before a repartitioning (a whole device that was sliced later) has an unknown part of the device,
        so no unit of the device may be allocated until that pod ends.
        """
        ids, mask, slot = self.ids, 0, -1
        try:
            if len(units) == 1:  # most pods
                return 1 << self._slot_of(units[0])
            for unit in units:
                slot += 1  # mostly the units of a pod follow each other
                if slot >= len(ids) or ids[slot] != unit:
                    slot = self._slot_of(unit)
                mask |= 1 << slot
        except ValueError:
            return self.full
        return mask

    def _slot_of(self, unit: UnitId) -> int:
        if len(self.ids) > _FEW:
            # A slice's number is its slot; a search takes microseconds at a hundred slices.
            number = unit.rpartition(SLICE_SEPARATOR)[2]
            if number.isdecimal() and number.isascii() and len(number) <= _MOST_DIGITS:
                slot = int(number)
                if slot < len(self.ids) and self.ids[slot] == unit:
                    return slot
        return self.ids.index(unit)


NO_UNITS = Layout(())


def layout_of(device: "DeviceFacts", pool: "PoolFacts | None") -> Layout:
    """Return the units of a device in its pool; none without a pool or a UUID.

    Units are what the device has now, which its agent brings to the pool's allocation: a device that is still
    partitioned has none in a pool of whole devices or slices. What it should have is known by what its driver says.
    A device whose UUID contains `::`, which no claim would match, has no units, and neither has one with more slices
    than any version offers, since they are enumerated.
    """
    if pool is None or device.pool != pool.name or not _is_uuid(device.uuid):
        return NO_UNITS
    if device.is_partitioned and pool.mode is not AllocationMode.MIG:
        return Layout((), missing=most_units_of_a_device(pool), differs=True)
    match pool.mode:
        case AllocationMode.EXCLUSIVE:
            return Layout((UnitId(device.uuid),))
        case AllocationMode.TIME_SLICE:
            if pool.slices_per_device > MOST_SLICES_READ:
                return NO_UNITS
            return Layout(slices_of(device.uuid, pool.slices_per_device))
        case AllocationMode.MIG:  # pragma: no branch  # mypy proves that none is missing
            return _instances(device, pool)


def units_by_resource(layout: Layout, pool: "PoolFacts") -> dict[str, tuple[UnitId, ...]]:
    """Return the units of a device by the resource that pods request."""
    if not pool.parts:
        return {pool.resource: layout.ids}
    slots = tuple(zip(layout.profiles, layout.ids, strict=True))
    return {
        part.resource: tuple(unit for profile, unit in slots if profile == part.mig_profile)
        for part in pool.parts
    }


def _instances(device: "DeviceFacts", pool: "PoolFacts") -> Layout:
    """Return the device's instances of the pool's profiles, in their order."""
    found = [_uuids(device, profile) for profile, _ in pool.shares]
    counts = tuple(map(len, found))
    expected = instances_of(pool.shares, device.mig_capacities)
    if expected is None and device.mig_capacities:
        return NO_UNITS  # it cannot hold the layout
    is_foreign = len(device.mig_instances) > sum(counts)
    differs = expected is not None and (is_foreign or counts != expected)
    return Layout(
        tuple(UnitId(uuid) for uuids in found for uuid in uuids),
        missing=sum(
            max(0, want - count) for want, count in zip(expected or counts, counts, strict=True)
        ),
        differs=differs,
        profiles=tuple(
            profile for (profile, _), uuids in zip(pool.shares, found, strict=True) for _ in uuids
        )
        if pool.parts
        else (),
    )


def partitioned_again(device: "DeviceFacts", pool: "PoolFacts") -> "DeviceFacts":
    """Return a device that nothing runs on as its agent partitions it for its pool; UUIDs of new instances are made up."""
    if not layout_of(device, pool).differs:
        return device
    if pool.mode is not AllocationMode.MIG:
        return replace(device, is_partitioned=False, mig_instances=())
    expected = instances_of(pool.shares, device.mig_capacities) or ()
    instances: list[tuple[str, str]] = []
    for (profile, _), count in zip(pool.shares, expected, strict=True):
        present = _uuids(device, profile)[:count]
        new = [f"{device.uuid}/{profile}/{number}" for number in range(count - len(present))]
        instances += ((profile, uuid) for uuid in (*present, *new))
    return replace(device, is_partitioned=True, mig_instances=tuple(instances))


def _uuids(device: "DeviceFacts", profile: str) -> list[str]:
    """Return the device's instances of a profile, in their order."""
    return sorted(
        {uuid for name, uuid in device.mig_instances if name == profile and _is_uuid(uuid)}
    )


def _is_uuid(text: str) -> bool:
    return text != "" and SLICE_SEPARATOR not in text


def most_units_of_a_device(pool: "PoolFacts") -> int:
    """Return the most units that a device of the pool can have once it is reported and partitioned.

    For a MIG profile without a number this is its share of seven compute slices, the most of any device. Memory, and
    other profiles beside it, may allow fewer: the figure tells when to wait, not what to expect.
    """
    match pool.mode:
        case AllocationMode.EXCLUSIVE:
            return 1
        case AllocationMode.TIME_SLICE:
            return pool.slices_per_device
        case AllocationMode.MIG:  # pragma: no branch  # mypy proves that none is missing
            return sum(
                count or _MOST_COMPUTE_SLICES // (compute_slices(profile) or 1)
                for profile, count in pool.shares
            )

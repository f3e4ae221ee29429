"""What holders have, judged by the index: conflicts, what is recovered, what evictions would free."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from api.names import PodUid, PoolName, ReservationId
    from pool.devices import DeviceEntry
    from pool.index import DeviceIndex
    from pool.reservation import Reservation


def conflicts(reservation: "Reservation", index: "DeviceIndex") -> bool:
    """Say whether a bound pod or another reservation has any of the reservation's units."""
    for name, mask in index.masks_of(reservation.units).items():
        entry = index.device(name)
        if entry is not None and mask & (
            entry.observed | index.assumed_by_others(entry, reservation.id)
        ):
            return True
    return False


def recoverable_units(reservation: "Reservation", pool: "PoolName", index: "DeviceIndex") -> int:
    """Count the units of a reservation that are usable, still of this pool, and not taken.

    A card may change its node or pool under a hold; what is held there is of no use here.
    """
    count = 0
    for name, mask in index.masks_held_alone(reservation.id).items():
        entry = index.device(name)
        if entry is None or not entry.is_usable:
            continue
        if (entry.facts.node, entry.facts.pool) == (reservation.node, pool):
            count += (mask & ~entry.observed).bit_count()
    return count


def free_units_without(
    gone: "Collection[PodUid | ReservationId]",
    entries: "Iterable[DeviceEntry]",
    index: "DeviceIndex",
) -> int:
    """Count the units that would be free on these devices if these holders were gone."""
    return sum(
        (entry.layout.full & ~_taken_without(gone, entry, index)).bit_count()
        for entry in entries
        if entry.is_usable
    )


def _taken_without(
    gone: "Collection[PodUid | ReservationId]", entry: "DeviceEntry", index: "DeviceIndex"
) -> int:
    mask = 0
    for owner, units in index.holders(entry).items():
        if owner in gone:
            continue
        for unit in units:
            mask |= entry.layout.mask_of(unit)
    return mask

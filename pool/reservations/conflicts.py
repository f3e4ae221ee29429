"""Units of reservations compared with the index: conflicts, units within reach, units freed by evictions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from api.names import DeviceName, PodUid, ReservationId
    from pool.index.devices import DeviceEntry
    from pool.index.figures import IndexFigures
    from pool.placement.device_rules import Counts
    from pool.reservations.ledger import ReservationLedger
    from pool.reservations.reservation import Reservation


def conflicts(reservation: "Reservation", index: "IndexFigures") -> bool:
    """Say whether a bound pod or another reservation has any of the reservation's units."""
    return any(
        mask & (entry.observed | index.claims.assumed_without(entry, {reservation.id}))
        for entry, mask in _entries_of(reservation, index)
    )


def conflicts_with_stored_pods(reservation: "Reservation", index: "IndexFigures") -> bool:
    """Say whether an existing pod has any of the reservation's units, bound or by its reservation."""
    return any(
        mask & (entry.observed | index.claims.confirmed_without(entry, {reservation.id}))
        for entry, mask in _entries_of(reservation, index)
    )


def unconfirmed_rivals(reservation: "Reservation", index: "IndexFigures") -> "list[ReservationId]":
    """Return the other unconfirmed reservations with any of these units, in order."""
    rivals: set[ReservationId] = set()
    for entry, mask in _entries_of(reservation, index):
        rivals |= index.claims.unconfirmed_on(entry, mask)
    return sorted(rivals - {reservation.id})


def units_within_reach(
    entries: "Sequence[DeviceEntry]",
    suffice: "Callable[[Counts], bool]",
    *,
    own: "Reservation | None",
    index: "IndexFigures",
    ledger: "ReservationLedger",
) -> "dict[DeviceName, int]":
    """Return the masks by device that a stored pod may take besides free units.

    They are those of its own reservation, and of as few unconfirmed reservations as suffice, the longest unobserved
    first.
    """
    gone = {own.id} if own is not None else set()
    unseen = {id_ for entry in entries for id_ in index.claims.unconfirmed_on(entry, entry.assumed)}
    reservations = filter(None, map(ledger.get, unseen - gone))
    for item in sorted(
        reservations, key=lambda reservation: (reservation.observe_by, reservation.id)
    ):
        if suffice(_free_units(entries, gone, index)):
            break
        gone.add(item.id)
    return {
        entry.facts.name: entry.assumed & ~index.claims.assumed_without(entry, gone)
        for entry in entries
    }


def _entries_of(
    reservation: "Reservation", index: "IndexFigures"
) -> "Iterator[tuple[DeviceEntry, int]]":
    for name, mask in index.claims.masks_of(reservation.units).items():
        entry = index.devices.get(name)
        if entry is not None:
            yield entry, mask


def free_units_without(
    gone: "Collection[PodUid | ReservationId]",
    entries: "Iterable[DeviceEntry]",
    index: "IndexFigures",
) -> "Counts":
    """Count, by device, the units that a stored pod could have if these holders were gone."""
    return tuple(
        (entry.layout.full & ~index.claims.taken_without(entry, gone)).bit_count()
        if entry.is_usable
        else 0
        for entry in entries
    )


def _free_units(
    entries: "Iterable[DeviceEntry]", gone: "Collection[ReservationId]", index: "IndexFigures"
) -> "Counts":
    return tuple(
        (
            entry.layout.full & ~entry.observed & ~index.claims.assumed_without(entry, gone)
        ).bit_count()
        if entry.is_usable
        else 0
        for entry in entries
    )

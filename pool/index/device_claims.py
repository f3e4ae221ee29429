"""Claims on devices: the units of bound pods (observed) and of reservations (assumed).

`DeviceIndex` is the only writer; the queries are for every reader of the index. Masks are bit masks by
unit slot of one device (`pool.layout.Layout`).
"""

from typing import TYPE_CHECKING, Any, final

from api.units import part_of
from pool.index.claims import Claims
from pool.index.duplicate_claims import DuplicateClaims

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from api.names import DeviceName, PodUid, ReservationId, UnitId
    from pool.index.devices import DeviceEntry, Devices


@final
class DeviceClaims:
    """Observed and assumed claims, and the subset of reservations whose pods are not observed yet."""

    def __init__(self, devices: "Devices") -> None:
        self._devices = devices
        self.observed: Claims[PodUid] = Claims()
        self.assumed: Claims[ReservationId] = Claims()
        self._duplicates: DuplicateClaims[PodUid] = DuplicateClaims()
        self.unconfirmed: set[ReservationId] = set()

    def replace_observed(self, pod: "PodUid", units: "tuple[UnitId, ...]") -> "set[str]":
        """Set the units of a bound pod, none to end its claims; return the UUIDs that changed."""
        parts = self.observed.replace(pod, units)
        self._duplicates.recheck(parts, self.observed)
        return parts

    def replace_assumed(
        self, reservation: "ReservationId", units: "tuple[UnitId, ...]", *, is_confirmed: bool
    ) -> "set[str]":
        """Set the units of a reservation, none to end its claims; return the UUIDs that changed."""
        parts = self.assumed.replace(reservation, units)
        is_unconfirmed = bool(units) and not is_confirmed
        if is_unconfirmed is not (reservation in self.unconfirmed):
            self.unconfirmed ^= {reservation}
            parts.update(map(part_of, units))
        return parts

    def observed_mask(self, entry: "DeviceEntry") -> int:
        return entry.mask_of(self.observed)

    def assumed_masks(self, entry: "DeviceEntry") -> tuple[int, int]:
        """Recompute the masks of units that reservations have: all, and the confirmed ones."""
        assumed = confirmed = 0
        bit_of = entry.layout.mask_of
        for part in entry.parts:
            for owner, units in self.assumed.owners_on(part):
                mask = 0
                for unit in units:
                    mask |= bit_of(unit)
                assumed |= mask
                if owner not in self.unconfirmed:
                    confirmed |= mask
        return assumed, confirmed

    def masks_of(self, units: "Iterable[UnitId]") -> "dict[DeviceName, int]":
        """Return the masks of the units by the device that owns their UUID; units of unknown devices are left out.

        Another device that claims the UUID may be partitioned otherwise, and there each unit would be all of it.
        """
        masks: dict[DeviceName, int] = {}
        for unit in units:
            for name in self._devices.with_part(part_of(unit))[:1]:
                masks[name] = masks.get(name, 0) | self._devices[name].layout.mask_of(unit)
        return masks

    def exclusive_masks(self, reservation: "ReservationId") -> "dict[DeviceName, int]":
        """Return the masks of units that this reservation has and no other one.

        Two reservations overlap after a device was repartitioned under them; such units belong to neither.
        """
        masks = self.masks_of(self.assumed.units(reservation))
        return {
            name: mask & ~self.assumed_without(self._devices[name], {reservation})
            for name, mask in masks.items()
        }

    def assumed_without(self, entry: "DeviceEntry", gone: "Collection[ReservationId]") -> int:
        """Return the mask of units that other reservations than these have."""
        return _mask_of(entry, self.assumed, lambda owner: owner not in gone)

    def confirmed_without(self, entry: "DeviceEntry", gone: "Collection[ReservationId]") -> int:
        """Return the mask of units that other confirmed reservations than these have."""
        unseen = self.unconfirmed
        return _mask_of(
            entry, self.assumed, lambda owner: owner not in gone and owner not in unseen
        )

    def unconfirmed_on(self, entry: "DeviceEntry", mask: int) -> "set[ReservationId]":
        """Return the unconfirmed reservations that have some of these units of a device."""
        if not mask & entry.assumed:
            return set()
        return {
            owner
            for part in entry.parts
            for owner, unit in self.assumed.on(part)
            if owner in self.unconfirmed and mask & entry.layout.mask_of(unit)
        }

    def holders(
        self, entry: "DeviceEntry"
    ) -> "Mapping[PodUid | ReservationId, tuple[UnitId, ...]]":
        """Return the units of a device by bound pod and by reservation."""
        return _owners(entry, self.observed, self.assumed)

    def confirmed_holders(
        self, entry: "DeviceEntry"
    ) -> "Mapping[PodUid | ReservationId, tuple[UnitId, ...]]":
        """Return the holders without unconfirmed reservations."""
        found = self.holders(entry)
        return {owner: units for owner, units in found.items() if owner not in self.unconfirmed}

    def occupants(self, entry: "DeviceEntry") -> "Mapping[PodUid, tuple[UnitId, ...]]":
        """Return the units of a device by bound pod, also those of an earlier partitioning."""
        return _owners(entry, self.observed)

    def duplicates(self) -> "Mapping[UnitId, frozenset[PodUid]]":
        """Return the units that several bound pods claim; empty unless something went wrong."""
        return self._duplicates.all()


def _owners(entry: "DeviceEntry", *relations: Claims[Any]) -> "dict[Any, tuple[UnitId, ...]]":
    found: dict[Any, tuple[UnitId, ...]] = {}
    for claims in relations:
        for part in entry.parts:
            for owner, unit in claims.on(part):
                found[owner] = (*found.get(owner, ()), unit)
    return found


def _mask_of(
    entry: "DeviceEntry",
    claims: "Claims[ReservationId]",
    counts: "Callable[[ReservationId], bool]",
) -> int:
    mask = 0
    for part in entry.parts:
        for owner, unit in claims.on(part):
            if counts(owner):
                mask |= entry.layout.mask_of(unit)
    return mask

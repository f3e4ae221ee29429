"""Claims on devices: the units of bound pods (observed) and of reservations (assumed).

`DeviceIndex` is the only writer; the queries are for every reader of the index. Masks are bit masks by
unit slot of one device (`pool.layout.Layout`).
"""

from itertools import product
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from api.names import UnitId
from api.units import part_of, units_by_part
from pool.index.claims import Claims

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from api.names import DeviceName, PodUid, ReservationId
    from pool.index.devices import DeviceEntry, Devices


Owner = TypeVar("Owner")


@final
class DuplicateClaims(Generic[Owner]):
    """Units that two bound pods claim, by device or MIG instance; that must never happen, from whatever source.

    A Binding by another client, or by an earlier leader after its term, may name a unit that is taken. Nothing is
    repaired here: the unit stays taken until both pods are gone, and the pods get Events.
    """

    def __init__(self) -> None:
        self._owners_by_unit: dict[str, dict[UnitId, frozenset[Owner]]] = {}
        # UUID of a device or MIG instance -> unit of it -> its owners, two or more

    def recheck(self, parts: "Iterable[str]", claims: "Claims[Owner]") -> None:
        """Recompute the owners of units of these UUIDs."""
        for part in parts:
            shared = _shared(part, claims) if claims.has_many_owners(part) else {}
            if shared:
                self._owners_by_unit[part] = shared
            else:
                self._owners_by_unit.pop(part, None)

    def all(self) -> "Mapping[UnitId, frozenset[Owner]]":
        """Return every such unit with its owners."""
        found: dict[UnitId, frozenset[Owner]] = {}
        for shared in self._owners_by_unit.values():
            found |= shared
        return found


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
        for part in entry.parts:
            for owner, units in self.assumed.owners_on(part):
                mask = entry.layout.mask_of(units)
                assumed |= mask
                if owner not in self.unconfirmed:
                    confirmed |= mask
        return assumed, confirmed

    def masks_of(self, units: "Iterable[UnitId]") -> "dict[DeviceName, int]":
        """Return the masks of the units by the device that owns their UUID; units of unknown devices are left out.

        Another device that claims the UUID may be partitioned otherwise, and there each unit would be all of it.
        """
        masks: dict[DeviceName, int] = {}
        for part, item in units_by_part(units).items():
            for name in self._devices.with_part(part)[:1]:
                masks[name] = masks.get(name, 0) | self._devices[name].layout.mask_of(item)
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
        return _mask_without(entry, self.assumed, gone, of_all=entry.assumed)

    def confirmed_without(
        self, entry: "DeviceEntry", gone: "Collection[PodUid | ReservationId]"
    ) -> int:
        """Return the mask of units that other confirmed reservations than these have."""
        return _mask_without(
            entry, self.assumed, gone, of_all=entry.confirmed, ignored=self.unconfirmed
        )

    def taken_without(
        self, entry: "DeviceEntry", gone: "Collection[PodUid | ReservationId]"
    ) -> int:
        """Return the mask of units that other bound pods and confirmed reservations than these have."""
        observed = _mask_without(entry, self.observed, gone, of_all=entry.observed)
        return observed | self.confirmed_without(entry, gone)

    def unconfirmed_on(self, entry: "DeviceEntry", mask: int) -> "set[ReservationId]":
        """Return the unconfirmed reservations that have some of these units of a device."""
        if not mask & entry.assumed:
            return set()
        return {
            owner
            for part in entry.parts
            for owner, units in self.assumed.owners_on(part)
            if owner in self.unconfirmed and mask & entry.layout.mask_of(units)
        }

    def holders(
        self, entry: "DeviceEntry"
    ) -> "Mapping[PodUid | ReservationId, tuple[UnitId, ...]]":
        """Return the units of a device by bound pod and by reservation."""
        return _owners(entry, self.observed, self.assumed)

    def occupants(self, entry: "DeviceEntry") -> "Mapping[PodUid, tuple[UnitId, ...]]":
        """Return the units of a device by bound pod, also those of an earlier partitioning."""
        return _owners(entry, self.observed)

    def duplicates(self) -> "Mapping[UnitId, frozenset[PodUid]]":
        """Return the units that several bound pods claim; empty unless something went wrong."""
        return self._duplicates.all()


def _owners(entry: "DeviceEntry", *relations: Claims[Any]) -> "dict[Any, tuple[UnitId, ...]]":
    found: dict[Any, tuple[UnitId, ...]] = {}
    for claims, part in product(relations, entry.parts):
        for owner, units in claims.owners_on(part):
            if entry.layout.has_any(units):
                found[owner] = (*found.get(owner, ()), *units)
    return found


def _mask_without(
    entry: "DeviceEntry",
    claims: Claims[Any],
    gone: "Collection[str]",
    *,
    of_all: int,
    ignored: "Collection[str]" = (),
) -> int:
    """Return the mask of units that other owners than these have.

    Args:
        entry: the device.
        claims: one of the relations.
        gone: few owners, mostly of no unit of the device.
        of_all: the mask as the entry has it, with those owners.
        ignored: owners whose units that mask does not have.
    """
    if not of_all or not any(claims.has_any_of(gone, part) for part in entry.parts):
        return of_all
    mask = 0
    for part in entry.parts:
        for owner, units in claims.owners_on(part):
            if owner not in gone and owner not in ignored:
                mask |= entry.layout.mask_of(units)
    return mask


def _shared(part: str, claims: "Claims[Owner]") -> dict[UnitId, frozenset[Owner]]:
    """Return the units of one UUID with several owners; a whole device overlaps its slices."""
    owners: dict[UnitId, set[Owner]] = {}
    for owner, units in claims.owners_on(part):
        for unit in units:
            owners.setdefault(unit, set()).add(owner)
    whole = owners.get(UnitId(part))
    if whole is not None:
        whole.update(*owners.values())
    return {unit: frozenset(item) for unit, item in owners.items() if len(item) > 1}

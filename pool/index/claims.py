"""Claims on units: one relation of owners and units, kept in both directions.

The index has two of them, observed and assumed, which are never merged.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from api.units import part_of, units_by_part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from api.names import UnitId

Owner = TypeVar("Owner")

_NO_CLAIMS: "Final[Mapping[Any, tuple[UnitId, ...]]]" = MappingProxyType({})


@final
class Claims(Generic[Owner]):
    """Units by owner, and owners by device or MIG instance."""

    def __init__(self) -> None:
        self._units_by_owner: dict[Owner, tuple[UnitId, ...]] = {}
        self._claims_by_part: dict[str, dict[Owner, tuple[UnitId, ...]]] = {}
        # UUID of a device or MIG instance -> owner -> its units there

    def replace(self, owner: Owner, units: "tuple[UnitId, ...]") -> set[str]:
        """Set the owner's units, none to end its claims; return the UUIDs that changed."""
        before = self._units_by_owner.get(owner, ())
        if before == units:
            return set()
        changed = set(map(part_of, before))
        for part in changed:
            self._drop(owner, part)
        for part, item in units_by_part(units).items():
            changed.add(part)
            self._claims_by_part.setdefault(part, {})[owner] = tuple(item)
        if units:
            self._units_by_owner[owner] = units
        else:
            del self._units_by_owner[owner]
        return changed

    def units(self, owner: Owner) -> "tuple[UnitId, ...]":
        return self._units_by_owner.get(owner, ())

    def has_many_owners(self, part: str) -> bool:
        """Say whether several owners have units of this device or MIG instance."""
        return len(self._claims_by_part.get(part, ())) > 1

    def has_any_of(self, owners: "Collection[Owner]", part: str) -> bool:
        """Say whether any of these owners has units of this device or MIG instance."""
        return not self._claims_by_part.get(part, _NO_CLAIMS).keys().isdisjoint(owners)

    def owners_on(self, part: str) -> "Iterable[tuple[Owner, tuple[UnitId, ...]]]":
        """Return each owner with its units of this device or MIG instance, to be read and not kept."""
        return self._claims_by_part.get(part, _NO_CLAIMS).items()

    def units_on(self, part: str) -> "Iterable[tuple[UnitId, ...]]":
        """Return each owner's units of this device or MIG instance, to be read and not kept."""
        return self._claims_by_part.get(part, _NO_CLAIMS).values()

    def _drop(self, owner: Owner, part: str) -> None:
        claims = self._claims_by_part[part]
        del claims[owner]
        if not claims:
            del self._claims_by_part[part]

"""Who holds which units: one relation, kept in both directions.

The index has two of them, observed and assumed, which are never merged.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from api.units import part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from api.names import UnitId

Owner = TypeVar("Owner")

_NOBODY: "Final[Mapping[Any, tuple[UnitId, ...]]]" = MappingProxyType({})


@final
class Claims(Generic[Owner]):
    """Units by owner, and owners by card or MIG instance."""

    def __init__(self) -> None:
        self._units_by_owner: dict[Owner, tuple[UnitId, ...]] = {}
        self._claims_by_part: dict[str, dict[Owner, tuple[UnitId, ...]]] = {}
        # UUID of a card or MIG instance -> owner -> the units of it that it has

    def replace(self, owner: Owner, units: "tuple[UnitId, ...]") -> set[str]:
        """Make these the owner's units, none to end its claims; return the UUIDs that changed."""
        before = self._units_by_owner.get(owner, ())
        if before == units:
            return set()
        changed = set()
        for unit in before:
            part = part_of(unit)
            if part not in changed:
                changed.add(part)
                self._drop(owner, part)
        for unit in units:
            part = part_of(unit)
            changed.add(part)
            claims = self._claims_by_part.setdefault(part, {})
            claims[owner] = (*claims.get(owner, ()), unit)
        if units:
            self._units_by_owner[owner] = units
        else:
            del self._units_by_owner[owner]
        return changed

    def units(self, owner: Owner) -> "tuple[UnitId, ...]":
        """Return the owner's units."""
        return self._units_by_owner.get(owner, ())

    def has_many_owners(self, part: str) -> bool:
        """Say whether more than one owner has some unit of this card or MIG instance."""
        return len(self._claims_by_part.get(part, ())) > 1

    def on(self, part: str) -> "Iterator[tuple[Owner, UnitId]]":
        """Yield who holds which unit of this card or MIG instance."""
        for owner, units in self._claims_by_part.get(part, _NOBODY).items():
            for unit in units:
                yield owner, unit

    def owners_on(self, part: str) -> "Iterable[tuple[Owner, tuple[UnitId, ...]]]":
        """Return each owner with what it has of this card or MIG instance. Read it, don't keep it."""
        return self._claims_by_part.get(part, _NOBODY).items()

    def units_on(self, part: str) -> "Iterable[tuple[UnitId, ...]]":
        """Return what each owner has of this card or MIG instance. Read it, don't keep it."""
        return self._claims_by_part.get(part, _NOBODY).values()

    def _drop(self, owner: Owner, part: str) -> None:
        claims = self._claims_by_part[part]
        del claims[owner]
        if not claims:
            del self._claims_by_part[part]

"""Who holds which units: one relation, kept in both directions.

The index has two of them, observed and assumed, which are never merged.
"""

from typing import TYPE_CHECKING, Generic, TypeVar, final

from pool.units import part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.names import UnitId

Owner = TypeVar("Owner")


@final
class Claims(Generic[Owner]):
    """Units by owner, and owners by card or MIG instance."""

    def __init__(self) -> None:
        self._units_by_owner: dict[Owner, tuple[UnitId, ...]] = {}
        self._owners_by_part: dict[str, set[Owner]] = {}
        # UUID of a card or MIG instance -> owners of some unit of it

    def replace(self, owner: Owner, units: "tuple[UnitId, ...]") -> set[str]:
        """Make these the owner's units, none to end its claims; return the UUIDs that changed."""
        before = self._units_by_owner.get(owner, ())
        if before == units:
            return set()
        changed = {part_of(unit) for unit in before} | {part_of(unit) for unit in units}
        for unit in before:
            self._drop(owner, part_of(unit))
        for unit in units:
            self._owners_by_part.setdefault(part_of(unit), set()).add(owner)
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
        return len(self._owners_by_part.get(part, ())) > 1

    def on(self, part: str) -> "Iterator[tuple[Owner, UnitId]]":
        """Yield who holds which unit of this card or MIG instance."""
        for owner in self._owners_by_part.get(part, ()):
            for unit in self._units_by_owner[owner]:
                if part_of(unit) == part:
                    yield owner, unit

    def _drop(self, owner: Owner, part: str) -> None:
        owners = self._owners_by_part.get(part)
        if owners is None:  # another of its units there was dropped before
            return
        owners.discard(owner)
        if not owners:
            del self._owners_by_part[part]

"""Units that two bound pods claim, which must never happen, from whatever source.

A Binding by another client, or by an earlier leader after its term, may name a unit that is taken. Nothing is
repaired here: the unit stays taken until both pods are gone, and the pods get Events.
"""

from typing import TYPE_CHECKING, Generic, TypeVar, final

from api.names import UnitId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pool.index.claims import Claims

Owner = TypeVar("Owner")


@final
class DuplicateClaims(Generic[Owner]):
    """Units with several owners, by device or MIG instance."""

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

"""Ids of allocatable units: a device's UUID, a MIG instance's UUID, or a time slice of a device.

A slice is the device's UUID, the separator and its number: `GPU-01234567-89ab-cdef-0123-456789abcdef::3`.
"""

from typing import TYPE_CHECKING, Final

from api.names import UnitId

if TYPE_CHECKING:
    from collections.abc import Iterable

SLICE_SEPARATOR: Final = "::"


def slices_of(uuid: str, count: int) -> tuple[UnitId, ...]:
    """Return the ids of a device's time slices."""
    return tuple(UnitId(f"{uuid}{SLICE_SEPARATOR}{number}") for number in range(count))


def part_of(unit: str) -> str:
    """Return the UUID of the device or MIG instance that the unit is, or is a slice of."""
    return unit.partition(SLICE_SEPARATOR)[0]


def units_by_part(units: "Iterable[UnitId]") -> dict[str, list[UnitId]]:
    """Return the units by the UUID of their device or MIG instance, in their order."""
    found: dict[str, list[UnitId]] = {}
    for unit in units:
        found.setdefault(part_of(unit), []).append(unit)
    return found

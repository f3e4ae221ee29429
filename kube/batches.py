"""Long work on many objects in steps; the event loop answers requests between two steps."""

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

STEP: Final = 100
"""Objects at a time: one that changed costs 20 us at most, so a step takes 2 ms at most."""


def steps(items: "Sequence[T]", size: int = STEP) -> "Iterator[Sequence[T]]":
    """Yield slices of the items in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]

"""The smallest list of steps that still violates: delta debugging, with a bound on re-runs.

A run depends on time too, so a list that violates once may pass the next time. What is returned has
violated when it was tried; None where not even the whole list did again.
"""

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")

_TRIED_WHOLE: Final = 3
"""How often the whole list is tried: where it does not violate again, no part of it is worth trying."""


async def shrink(
    steps: "Sequence[T]", violates: "Callable[[list[T]], Awaitable[bool]]", *, reruns: int
) -> list[T] | None:
    """Take chunks out, halves first, then ever smaller ones, as long as what is left violates.

    Args:
        steps: a list that violated once.
        violates: carries a list out; it is called at most `reruns` times.
        reruns: the bound.
    """
    left, smallest = reruns, list(steps)
    for _ in range(min(_TRIED_WHOLE, reruns)):
        left -= 1
        if await violates(smallest):
            break
    else:
        return None
    chunk = len(smallest) // 2
    while chunk and left > 0:
        start, was_shortened = 0, False
        while start < len(smallest) > 1 and left > 0:
            tried = smallest[:start] + smallest[start + chunk :]
            left -= 1
            if await violates(tried):
                smallest, was_shortened = tried, True
                chunk = max(1, min(chunk, len(smallest) // 2))
            else:
                start += chunk
        if not was_shortened or len(smallest) == 1:
            chunk //= 2
    return smallest

"""Nodes that are certainly not needed: a bound that shares no code with the planner.

Whether pods fit on nodes is answered from one side only: False is certain, True may be too kind. So nodes that count
as too many may be needed after all, and never the other way round.
"""

from collections.abc import Sequence
from fractions import Fraction


def may_fit(pods: Sequence[int], nodes: Sequence[int]) -> bool:
    """Say whether no bound forbids pods of these units on nodes with so many free ones.

    Pods of a size and above go to nodes of that size and above. Of each node they take at most its own share, by the
    dual feasible functions of Fekete and Schepers (2001), which are superadditive.
    """
    for least in set(pods):
        large = [units for units in nodes if units >= least]
        most = max(large, default=0)
        sizes = [units for units in pods if units >= least]
        if not most or max(sizes) > most:
            return False
        for steps in range(1, most + 1):
            if _shares(sizes, most, steps) > _shares(large, most, steps):
                return False
    return True


def surplus(pods: Sequence[int], new: Sequence[int], others: Sequence[int]) -> int:
    """Return how many of the new nodes are beyond the fewest that could hold these pods together with the others."""
    kept = sorted(new, reverse=True)
    while kept and may_fit(pods, [*kept[:-1], *others]):
        kept.pop()
    return len(new) - len(kept)


def _shares(sizes: Sequence[int], units: int, steps: int) -> Fraction:
    return sum((_share(size, units, steps) for size in sizes), Fraction(0))


def _share(size: int, units: int, steps: int) -> Fraction:
    scaled = (steps + 1) * size
    return Fraction(size, units) if scaled % units == 0 else Fraction(scaled // units, steps)

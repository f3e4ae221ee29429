"""The fewest nodes that pods need, by trying everything: for a handful of pods. It shares no code with the planner."""

from collections.abc import Sequence
from functools import cache

Capacity = tuple[int, int]
"""Units and CPU milli."""


def fewest_new_nodes(
    pods: Sequence[Capacity], pod_counts: Sequence[Capacity], shapes: Sequence[Capacity]
) -> int | None:
    """Return the fewest nodes of any shapes without which not all pods have room; None where no number does.

    Args:
        pods: what each pod needs.
        pod_counts: what is left of the nodes that there are.
        shapes: what an empty node of each shape has.
    """

    @cache
    def search(at: int, left: tuple[Capacity, ...]) -> int | None:
        if at == len(pods):
            return 0
        best: int | None = None
        for item in set(left):
            remaining = _minus(item, pods[at])
            if remaining is not None:
                others = list(left)
                others.remove(item)
                best = _less(best, search(at + 1, tuple(sorted([*others, remaining]))))
        for shape in set(shapes):
            remaining = _minus(shape, pods[at])
            if remaining is not None:
                found = search(at + 1, tuple(sorted([*left, remaining])))
                best = _less(best, None if found is None else found + 1)
        return best

    return search(0, tuple(sorted(pod_counts)))


def all_fit(pods: Sequence[Capacity], pod_counts: Sequence[Capacity]) -> bool:
    """Say whether all pods have room at the same time."""
    return fewest_new_nodes(pods, pod_counts, ()) == 0


def _minus(capacity: Capacity, pod: Capacity) -> Capacity | None:
    units, cpu = capacity[0] - pod[0], capacity[1] - pod[1]
    return (units, cpu) if units >= 0 and cpu >= 0 else None


def _less(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)

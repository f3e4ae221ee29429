"""Kinds of waiting pods: pods that any node takes or refuses alike, and the kinds that have a place in a plan.

Each kind is compared with every node that has free units, so that a plan has room for `MOST_KINDS`. Places are given to
namespaces in turn: however many kinds the pods of one namespace are of, those of others are planned. Kinds that no shape can
serve come last, since no node is ever asked for them.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from autoscaling.node_selections import NodeSelection
    from autoscaling.scaling_model import PodWait
    from pool.compute_resources import ComputeResources
    from pool.index.pool_state import PoolState
    from pool.model import Demand, PodFacts

MOST_KINDS: Final = 128
"""Of pods in one plan."""
_MOST_EXAMINED: Final = 1_024
"""Kinds of which it is asked whether a shape can serve them."""


@final
@dataclass(slots=True, eq=False)
class PodClass:
    """Pods that any node takes or refuses alike."""

    demand: "Demand"
    selection: "NodeSelection"
    requests: "ComputeResources"
    state: "PoolState"
    """Of the pool as these pods see it: devices that their kernel caches do not fit have no units."""
    first_node: int = 0
    """Position of the first node that may take one of them."""
    wait: "PodWait | None" = None
    """Why no node takes one of them."""


def kinds_with_a_place(
    pods: "Iterable[tuple[PodFacts, PodClass]]", *, is_served: "Callable[[PodClass], bool]"
) -> "set[PodClass]":
    """Return the kinds that are planned.

    Args:
        pods: waiting pods in their order, with their kinds.
        is_served: says whether a shape of the pool can serve a kind.
    """
    by_namespace: dict[str, list[PodClass]] = {}
    kinds: set[PodClass] = set()
    for pod, kind in pods:
        if kind not in kinds:
            kinds.add(kind)
            by_namespace.setdefault(pod.namespace, []).append(kind)
    if len(kinds) <= MOST_KINDS:
        return kinds
    found: list[PodClass] = []
    unserved: list[PodClass] = []
    for number, kind in enumerate(_in_turn(by_namespace.values())):
        if len(found) == MOST_KINDS or number == _MOST_EXAMINED:
            break
        (found if is_served(kind) else unserved).append(kind)
    return set((found + unserved)[:MOST_KINDS])


def _in_turn(lists: "Iterable[list[PodClass]]") -> "Iterator[PodClass]":
    """Yield the first of each list, then the second of each."""
    for row in zip_longest(*lists):
        yield from (kind for kind in row if kind is not None)

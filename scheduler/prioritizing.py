"""prioritize: 10 for the node of the pod's own hold, 0 to 9 by the pool's strategy for the others.

The scores are in the index's view already; the cost is one look-up a name.
"""

from itertools import repeat
from typing import TYPE_CHECKING, Final

from pool.nodeview import MAX_SCORE
from scheduler.answer import Outcome
from scheduler.asking import AsksImpossible, AsksNothing, AsksUnits, own_node
from scheduler.wire import HostPriority

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.books import Books
    from scheduler.asking import Asked

OWN_SCORE: Final = MAX_SCORE + 1
"""MaxExtenderPriority; kube-scheduler clamps nothing above it."""


def score_names(
    asked: "Asked", names: "list[NodeName]", books: "Books"
) -> tuple[Outcome, list[HostPriority]]:
    """Score every name, in their order; a node that does not fit has 0."""
    match asked:
        case AsksNothing():
            return Outcome.NOT_OURS, no_scores(names)
        case AsksImpossible():
            return Outcome.IMPOSSIBLE, no_scores(names)
        case AsksUnits():
            return _scored(asked, names, books)


def no_scores(names: "list[NodeName]") -> list[HostPriority]:
    """Score every name 0: this call has no opinion."""
    return [HostPriority(name, 0) for name in names]


def _scored(
    asked: AsksUnits, names: "list[NodeName]", books: "Books"
) -> tuple[Outcome, list[HostPriority]]:
    scores = books.index.view(asked.pool.name, asked.demand.units).scores
    values = list(map(scores.get, names, repeat(0)))
    fits = not scores.keys().isdisjoint(names)
    best = _preferred(asked, books)
    if best is not None and best in names:
        values[names.index(best)] = OWN_SCORE
        fits = True
    found = list(map(HostPriority, names, values))
    return Outcome.FITS if fits else Outcome.NONE_FITS, found


def _preferred(asked: AsksUnits, books: "Books") -> "NodeName | None":
    """Return the node that the pod is bound to or holds enough units on."""
    bound = books.bound_to(asked.uid) if asked.uid is not None else None
    if bound is not None:
        return bound.node
    own, refusal = own_node(asked, books)
    return own if refusal is None else None

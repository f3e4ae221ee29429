"""filter: which of the named nodes can hold the pod now, and why the others cannot.

Takes nothing, so that a simulation costs nothing. All nodes that fit are returned: kube-scheduler's own
scoring then still has a choice. A node that eviction could free goes to `FailedNodes`; any other to
`FailedAndUnresolvableNodes`, which preemption skips.

Whole lists go through `map`, `set` and `zip`, since this runs inside kube-scheduler's serial cycle for
hundreds of names: about 45 ns a name when all fit, 140 ns when none does (CPython 3.11).
"""

import functools
from itertools import repeat
from typing import TYPE_CHECKING, Final

from pool.refusal import NodeReason, NodeRefusal
from scheduler.answer import Outcome
from scheduler.asking import AsksImpossible, AsksNothing, AsksUnits, binding_text, own_node
from scheduler.wire import FilterResult
from telemetry.reasons import node_refusal_text

if TYPE_CHECKING:
    from api.names import NodeName, PoolName
    from pool.books import Books
    from scheduler.asking import Asked

_text_of = functools.lru_cache(maxsize=8192)(node_refusal_text)
"""Figures repeat over nodes, pods and time; 8,192 texts are about 1 MB."""

_ABSENT: Final = NodeRefusal(reason=NodeReason.NODE_NOT_IN_POOL)
_UNKNOWN: Final = NodeRefusal(reason=NodeReason.UNKNOWN_NODE)


def filter_names(
    asked: "Asked", names: "list[NodeName]", books: "Books"
) -> tuple[Outcome, FilterResult]:
    """Sort the names, each into exactly one of the reply's three parts, in their order."""
    match asked:
        case AsksNothing():
            return Outcome.NOT_OURS, FilterResult(node_names=names)
        case AsksImpossible(text=text):
            nowhere = dict.fromkeys(names, text)
            return Outcome.IMPOSSIBLE, FilterResult(failed_and_unresolvable_nodes=nowhere)
        case AsksUnits():
            result = _pinned(asked, names, books) or _sorted(asked, names, books)
            return Outcome.FITS if result.node_names else Outcome.NONE_FITS, result


def _pinned(asked: AsksUnits, names: "list[NodeName]", books: "Books") -> FilterResult | None:
    """Let a pod that is bound, or may be, pass on that node only.

    The others are unresolvable: no eviction can help a pod that must not go there.
    """
    bound = books.bound_to(asked.uid) if asked.uid is not None else None
    if bound is None:
        return None
    text = f"GPU pool {asked.pool.name}: {binding_text(bound)}"
    others = (name for name in names if name != bound.node)
    return FilterResult(
        node_names=[name for name in names if name == bound.node],
        failed_and_unresolvable_nodes=dict.fromkeys(others, text),
    )


def _sorted(asked: AsksUnits, names: "list[NodeName]", books: "Books") -> FilterResult:
    refusals = books.index.view(asked.pool.name, asked.demand.units).refusals
    verdicts = list(map(refusals.get, names, repeat(_ABSENT)))
    own, refusal = own_node(asked, books)
    if own is not None and refusal != refusals.get(own, _ABSENT):
        verdicts = [
            refusal if name == own else verdict
            for name, verdict in zip(names, verdicts, strict=True)
        ]
    kinds = set(verdicts)
    if kinds == {None}:
        return FilterResult(node_names=names)
    if _ABSENT in kinds:
        verdicts = [
            _UNKNOWN if verdict is _ABSENT and not books.index.knows_node(name) else verdict
            for name, verdict in zip(names, verdicts, strict=True)
        ]
    return _arranged(names, verdicts, asked.pool.name)


def _arranged(
    names: "list[NodeName]", verdicts: "list[NodeRefusal | None]", pool: "PoolName"
) -> FilterResult:
    fits: dict[NodeName, str] = {}
    failed: dict[NodeName, str] = {}
    unresolvable: dict[NodeName, str] = {}
    places: dict[NodeRefusal | None, tuple[dict[NodeName, str], str]] = {None: (fits, "")}
    # verdict -> the part of the reply that its nodes go to, and the text for them
    for refusal in set(verdicts):
        if refusal is not None:
            part = failed if refusal.reason.is_resolvable else unresolvable
            places[refusal] = (part, _text_of(refusal, pool))
    for name, verdict in zip(names, verdicts, strict=True):
        part, text = places[verdict]
        part[name] = text
    return FilterResult(
        node_names=list(fits), failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable
    )

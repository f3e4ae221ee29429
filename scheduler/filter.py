"""filter: which of the named nodes fit the pod now, and why the others do not.

It reserves nothing, so a simulation costs nothing. All nodes that fit are returned, so that kube-scheduler's own
scoring has a choice. A node that eviction could free goes to `FailedNodes`; any other to
`FailedAndUnresolvableNodes`, which preemption skips.

A pod with reserved units on one of the nodes passes there alone. prioritize would put that node first by more than
all other scores together (`manifests.install.scheduler`), so no choice is lost, and kube-scheduler need not score
hundreds of nodes or call prioritize (docs/design/0003-nominating.md). In a pool that reserves units and no node it
passes on all nodes that fit; bind takes the units there and gives the reserved ones back.

This runs inside kube-scheduler's serial cycle for hundreds of names. So whole lists go through `map` and `zip`,
names that all fit are answered with the bytes of the request, and an answer is kept with its list while the view
that it came from does not change.
"""

import functools
from itertools import repeat
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import Reserve
from pool.refusal import NodeReason, NodeRefusal
from scheduler.codec import encode_all_fit, encode_names, encode_sorted
from scheduler.node_lists import Candidates, Filtered
from scheduler.outcome import Outcome
from scheduler.pod_demand import ImpossibleDemand, NoDemand, UnitDemand, binding_text, own_node
from telemetry.reasons import node_refusal_text

if TYPE_CHECKING:
    from api.names import NodeName, PoolName
    from pool.allocation_reader import AlreadyBound
    from pool.index.node_view import FitView
    from scheduler.context import ExtenderContext
    from scheduler.pod_demand import PodDemand

_text_of = functools.lru_cache(maxsize=8192)(node_refusal_text)
"""Figures repeat over nodes, pods and time; 8,192 texts are about 1 MB."""

_ABSENT: Final = NodeRefusal(reason=NodeReason.NODE_NOT_IN_POOL)
_UNKNOWN: Final = NodeRefusal(reason=NodeReason.UNKNOWN_NODE)
_ANY_GENERATION: Final = -1
"""The answer depends on the view alone."""


def filter_names(
    asked: "PodDemand", candidates: Candidates, context: "ExtenderContext"
) -> tuple[Outcome, Filtered]:
    """Sort each name into exactly one of the reply's three parts, in their order.

    For a pod that passes on the node of its reservation, the other names are left out.
    """
    match asked:
        case NoDemand():
            return Outcome.NOT_OURS, _all_of(candidates)
        case ImpossibleDemand(text=text):
            nowhere = dict.fromkeys(candidates.names, text)
            return Outcome.IMPOSSIBLE, _parted([], {}, nowhere)
        case UnitDemand():
            bound = context.reader.bound_to(asked.uid) if asked.uid is not None else None
            if bound is not None:
                filtered = _pinned(asked, candidates.names, bound)
            else:
                filtered = _sorted(asked, candidates, context)
            return Outcome.FITS if filtered.fit else Outcome.NONE_FITS, filtered


def _pinned(asked: UnitDemand, names: "list[NodeName]", bound: "AlreadyBound") -> Filtered:
    """Pass a pod that is bound, or may be, on that node only.

    The others are unresolvable: no eviction helps a pod that must not go there.
    """
    text = f"GPU pool {asked.pool.name}: {binding_text(bound)}"
    others = (name for name in names if name != bound.node)
    return _parted([name for name in names if name == bound.node], {}, dict.fromkeys(others, text))


def _sorted(asked: UnitDemand, candidates: Candidates, context: "ExtenderContext") -> Filtered:
    own, refusal = own_node(asked, context.reader)
    is_chosen = asked.pool.reserve is Reserve.NODE
    if is_chosen and own is not None and refusal is None and own in candidates.names:
        return _parted([own], {}, {})
    view = context.index.view(asked.pool.name, asked.demand)
    if own is None or refusal == view.refusals.get(own, _ABSENT):
        return _by_view(asked, candidates, context, view=view)
    names = candidates.names
    refusals = [
        refusal if name == own else other
        for name, other in zip(names, _refusals(names, view), strict=True)
    ]
    return _arranged(candidates, refusals, asked.pool.name, context=context)


def _by_view(
    asked: UnitDemand,
    candidates: Candidates,
    context: "ExtenderContext",
    *,
    view: "FitView",
) -> Filtered:
    found = candidates.answers(view)
    generation = context.index.generation
    if found.filtered is not None and found.filtered_at in {
        (view.refusals_moved, _ANY_GENERATION),
        (view.refusals_moved, generation),
    }:
        return found.filtered
    items = context.scores.of(view, candidates.names)
    if None not in items:
        filtered, generation = _all_of(candidates), _ANY_GENERATION
        found.keep_items(items, view)
    else:
        refusals = _refusals(candidates.names, view)
        filtered = _arranged(candidates, refusals, asked.pool.name, context=context)
        if _ABSENT not in refusals:
            generation = _ANY_GENERATION
        fitting = [item for item in items if item is not None]
        if filtered.passing is not None and filtered.fit == len(fitting):
            filtered.passing.answers(view).keep_items(fitting, view)
    found.filtered, found.filtered_at = filtered, (view.refusals_moved, generation)
    return filtered


def _refusals(names: "list[NodeName]", view: "FitView") -> "list[NodeRefusal | None]":
    return list(map(view.refusals.get, names, repeat(_ABSENT)))


def _arranged(
    candidates: Candidates,
    refusals: "list[NodeRefusal | None]",
    pool: "PoolName",
    *,
    context: "ExtenderContext",
) -> Filtered:
    names, kinds = candidates.names, set(refusals)
    if kinds == {None}:
        return _all_of(candidates)
    if _ABSENT in kinds:
        refusals = [
            _UNKNOWN if refusal is _ABSENT and not context.index.knows_node(name) else refusal
            for name, refusal in zip(names, refusals, strict=True)
        ]
    fits: dict[NodeName, str] = {}
    failed: dict[NodeName, str] = {}
    unresolvable: dict[NodeName, str] = {}
    places: dict[NodeRefusal | None, tuple[dict[NodeName, str], str]] = {None: (fits, "")}
    # refusal -> the part of the reply that its nodes go to, and the text for them
    for refusal in set(refusals):
        if refusal is not None:
            part = failed if refusal.reason.is_resolvable else unresolvable
            places[refusal] = (part, _text_of(refusal, pool))
    for name, refusal in zip(names, refusals, strict=True):
        part, text = places[refusal]
        part[name] = text
    return _parted(list(fits), failed, unresolvable)


def _all_of(candidates: Candidates) -> Filtered:
    return Filtered(encode_all_fit(candidates.raw), len(candidates.names))


def _parted(
    fits: "list[NodeName]", failed: "dict[NodeName, str]", unresolvable: "dict[NodeName, str]"
) -> Filtered:
    passing = Candidates(encode_names(fits), fits)
    return Filtered(encode_sorted(passing.raw, failed, unresolvable), len(fits), passing)

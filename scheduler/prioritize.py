"""prioritize: 10 for the node of the pod's own reservation, 0 to 9 by the pool's strategy for the others.

Of a pod with kernel caches a part of the 9 is for nodes that have all of them (`pool.index.cache_fit.WARM_SCORE`).

In a pool that reserves units and no node all nodes have 0: kube-scheduler's own scores decide.

Without a reservation the best node by LeastFragmentation has 10: kube-scheduler picks at random among equal scores.

The index's view has the scores, and filter has looked them up with the refusals. The cost is one look-up a name
where it has not, and none where list and view are those of the call before.
"""

from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import Reserve
from pool.index.cache_fit import best_node, with_warmth
from pool.index.node_view import MAX_SCORE
from scheduler.codec import HostPriority, encode_priorities, encode_priority, join_priorities
from scheduler.node_lists import Scored
from scheduler.outcome import Outcome
from scheduler.pod_demand import ImpossibleDemand, NoDemand, UnitDemand, own_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import NodeName
    from pool.device_limit import CacheDemand
    from pool.index.node_view import FitView
    from scheduler.context import ExtenderContext
    from scheduler.node_lists import Candidates
    from scheduler.pod_demand import PodDemand

OWN_SCORE: Final = MAX_SCORE + 1
"""MaxExtenderPriority; kube-scheduler clamps nothing above it."""


def score_names(
    asked: "PodDemand", candidates: "Candidates", context: "ExtenderContext"
) -> tuple[Outcome, Scored]:
    """Score every name, in their order; a node that does not fit has 0."""
    match asked:
        case NoDemand():
            return Outcome.NOT_OURS, Scored(no_scores(candidates.names), any_fits=False)
        case ImpossibleDemand():
            return Outcome.IMPOSSIBLE, Scored(no_scores(candidates.names), any_fits=False)
        case UnitDemand():
            scored = _scored(asked, candidates, context)
            return Outcome.FITS if scored.any_fits else Outcome.NONE_FITS, scored


def no_scores(names: "list[NodeName]") -> bytes:
    """Score every name 0."""
    return encode_priorities([HostPriority(name, 0) for name in names])


def _scored(asked: UnitDemand, candidates: "Candidates", context: "ExtenderContext") -> Scored:
    index = context.index
    view = index.view(asked.pool.name, asked.demand)
    if asked.pool.reserve is Reserve.UNITS:
        own, refusal = own_node(asked, context.reader)
        fitting = {*view.scores, own} if refusal is None else view.scores
        any_fits = any(name in fitting for name in candidates.names)
        return Scored(no_scores(candidates.names), any_fits=any_fits)
    preference = index.cache_demand_of(asked.demand) if asked.demand.caches else None
    scores: Mapping[NodeName, int] = view.scores
    if preference is None:
        scored = _by_view(candidates, view, context)
    else:
        scores = _with_warmth(candidates, view, preference)
        scored = _by_scores(candidates, scores)
    best, lost = _preferred(asked, context), None
    if best is None:
        best = _cheapest(asked, candidates, context)
        if best is not None:
            lost = index.state_for(asked.pool.name, asked.demand).value_lost(asked.demand, best)
    if best is not None and best in candidates.names:
        body = _with_own(scored.body, best, scores.get(best, 0))
        return Scored(body, any_fits=True, best=best, value_lost=lost)
    return scored


def _by_view(candidates: "Candidates", view: "FitView", context: "ExtenderContext") -> Scored:
    found = candidates.answers(view)
    if found.scored is not None and found.scored_at == view.scores_moved:
        return found.scored
    names = candidates.names
    items = found.take_items(view)
    if items is None:
        items = context.scores.of(view, names)
    written = [
        item if item is not None else encode_priority(name, 0)
        for name, item in zip(names, items, strict=True)
    ]
    scored = Scored(join_priorities(written), any_fits=any(items))
    found.scored, found.scored_at = scored, view.scores_moved
    return scored


def _with_warmth(
    candidates: "Candidates", view: "FitView", preference: "CacheDemand"
) -> "dict[NodeName, int]":
    """Return the scores of the nodes that fit, for a pod whose caches some of them have."""
    scores, warm_nodes = view.scores, preference.warm_nodes
    return {
        name: with_warmth(scores[name], is_warm=name in warm_nodes)
        for name in candidates.names
        if name in scores
    }


def _by_scores(candidates: "Candidates", scores: "Mapping[NodeName, int]") -> Scored:
    written = [encode_priority(name, scores.get(name, 0)) for name in candidates.names]
    return Scored(join_priorities(written), any_fits=bool(scores))


def _with_own(body: bytes, node: "NodeName", score: int) -> bytes:
    """Give the node's first item the score of a pod's own node.

    An item's text cannot be part of a name: the quotes in it would be escaped there.
    """
    return body.replace(encode_priority(node, score), encode_priority(node, OWN_SCORE), 1)


def _preferred(asked: UnitDemand, context: "ExtenderContext") -> "NodeName | None":
    """Return the node that the pod is bound to or has enough reserved units on."""
    bound = context.reader.bound_to(asked.uid) if asked.uid is not None else None
    if bound is not None:
        return bound.node
    own, refusal = own_node(asked, context.reader)
    return own if refusal is None else None


def _cheapest(
    asked: UnitDemand, candidates: "Candidates", context: "ExtenderContext"
) -> "NodeName | None":
    """Return the node whose value loses least, where the pool's strategy goes by that and it is known."""
    if context.index.state(asked.pool.name).ranking is None:
        return None
    names = frozenset(candidates.names)
    return best_node(context.index, asked.pool.name, asked.demand, accepts=names.__contains__)

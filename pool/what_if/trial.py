"""Where a pod would be placed now: as filter, prioritize and bind decide it, within kube-scheduler's limits of a node.

Of kube-scheduler's part these are weighed: readiness, cordons, node selector and node affinity, taints, CPU, memory, the
number of pods, and what this pod and others require of each other. Among nodes of one score the first by name is taken. Other parts of a pod on which kube-scheduler
may decide otherwise are `pool.what_if.unweighed`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from api.kinds.gpupool import Reserve
from pool.compute_resources import NOTHING
from pool.index.cache_fit import best_node, with_warmth
from pool.index.node_view import refusal_of
from pool.placement.planner import Placed
from pool.what_if.exclusion import exclusion_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from api.names import NodeName
    from pool.allocation_reader import AllocationReader
    from pool.compute_resources import ComputeResources
    from pool.index.reader import IndexReader
    from pool.model import Constraints, PodFacts, PoolFacts
    from pool.refusal import NodeRefusal

    Freed = Callable[[NodeName], ComputeResources]
    """CPU, memory and places that a node has more than the index knows."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPod:
    """A pending pod, the pool that serves it, and the constraints on its node."""

    facts: "PodFacts"
    pool: "PoolFacts"
    constraints: "Constraints"


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """The node that the pod goes to, with the units that bind gives it there."""

    placed: Placed
    is_reserved: bool
    """The units are the pod's already."""
    fitting_nodes: int
    """Nodes that take the pod; of a pod with reserved units filter passes their node alone."""
    equal_nodes: int
    """Number of these nodes that have the best score."""


@final
@dataclass(frozen=True, slots=True)
class NodeFault:
    """Why a node does not take the pod: a limit of kube-scheduler, or too few units."""

    limit: str = ""
    refusal: "NodeRefusal | None" = None
    ends_with_pods: bool = False
    """Whether pods that end can free capacity."""


def nothing_freed(_: "NodeName") -> "ComputeResources":
    return NOTHING


@final
@dataclass(frozen=True, slots=True)
class Trial:
    """One pod on an allocation state, which is only read."""

    reader: "AllocationReader"
    index: "IndexReader"
    pod: TrialPod
    _constraints: "Constraints" = field(init=False)

    def __post_init__(self) -> None:
        pod = self.pod
        weighed = self.reader.with_peer_tests(pod.pool, pod.constraints, uid=pod.facts.uid)
        object.__setattr__(self, "_constraints", weighed)

    def choose(
        self, *, nodes: "Collection[NodeName] | None" = None, freed: "Freed" = nothing_freed
    ) -> Choice | None:
        """Return where the pod goes; None where no node takes it.

        Args:
            nodes: those that are asked about; all of the pool if left out.
            freed: what nodes have beside what the index knows.
        """
        if self.pod.pool.closed is not None:
            return None
        own = self.reader.ledger.of_pod(self.pod.facts.uid)
        reserved: Choice | None = None
        if own is not None and own.node is not None and (nodes is None or own.node in nodes):
            placed = None if self.limit(own.node, freed) else self._bound_on(own.node)
            if placed is not None:
                reserved = Choice(placed, is_reserved=True, fitting_nodes=1, equal_nodes=1)
        if reserved is not None and self.pod.pool.reserve is Reserve.NODE:
            return reserved
        current = dict(self._scores())
        if reserved is not None:
            current.setdefault(reserved.placed.node, 0)
        scores = {
            name: score
            for name, score in current.items()
            if (nodes is None or name in nodes) and not self.limit(name, freed)
        }
        if not scores:
            return None
        best = self._best_of(scores)
        planned = self._bound_on(best)
        if planned is None:
            return None
        equal = sum(score == scores[best] for score in scores.values())
        return Choice(planned, is_reserved=False, fitting_nodes=len(scores), equal_nodes=equal)

    def faults(self) -> "Iterator[tuple[NodeName, NodeFault]]":
        """Yield the nodes of the pool that do not take the pod, by name."""
        index, pool, facts = self.index, self.pod.pool, self.pod.facts
        state = index.state_for(pool.name, facts.demand)
        request, summaries = state.request_of(facts.demand), state.nodes()
        own = self.reader.ledger.of_pod(facts.uid)
        for name in sorted(index.state(pool.name).devices_by_node):
            if exclusion := self._exclusion(name):
                yield name, NodeFault(exclusion)
                continue
            summary = summaries.get(name)
            if summary is None or (own is not None and own.node == name):
                refusal = self.reader.refusal_on(name, pool, facts.demand, uid=facts.uid)
            else:
                refusal = refusal_of(summary, request)
            if refusal is not None:
                yield name, NodeFault("", refusal, ends_with_pods=refusal.reason.is_resolvable)
            elif limit := self.limit(name):
                yield name, NodeFault(limit, ends_with_pods=True)

    def limit(self, node: "NodeName", freed: "Freed" = nothing_freed) -> str:
        """Return why kube-scheduler passes a node over, whatever units are free there; empty where it does not."""
        facts = self.pod.facts
        return self._exclusion(node) or self.index.shortage(
            facts.requests, node, freed=freed(node), without=facts.uid
        )

    def _exclusion(self, node: "NodeName") -> str:
        facts = self.index.nodes.get(node)
        if facts is None:
            return "node does not exist"
        return exclusion_of(facts, self._constraints)

    def _bound_on(self, node: "NodeName") -> Placed | None:
        facts = self.pod.facts
        planned = self.reader.plan_bind(node, self.pod.pool, facts.demand, uid=facts.uid)
        return planned if isinstance(planned, Placed) else None

    def _scores(self) -> "Mapping[NodeName, int]":
        """Return the scores of prioritize."""
        index, demand = self.index, self.pod.facts.demand
        scores = index.view(self.pod.pool.name, demand).scores
        if self.pod.pool.reserve is Reserve.UNITS:
            return dict.fromkeys(scores, 0)
        preference = index.cache_demand_of(demand) if demand.caches else None
        if preference is None:
            return scores
        return {
            name: with_warmth(score, is_warm=name in preference.warm_nodes)
            for name, score in scores.items()
        }

    def _best_of(self, scores: "Mapping[NodeName, int]") -> "NodeName":
        if self.pod.pool.reserve is Reserve.UNITS:
            return min(scores)
        index, pool, demand = self.index, self.pod.pool.name, self.pod.facts.demand
        if index.state(pool).ranking is not None:
            best = best_node(index, pool, demand, accepts=scores.__contains__)
            if best is not None:
                return best
        return min(scores, key=lambda name: (-scores[name], name))

"""Scores of nodes by kind of demand, of which only those of changed nodes are computed again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pool.placement.simulation.results import RefusalCause
from tests.bench.placement.node_state import Met, met
from tests.bench.placement.strategies import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.placement.node_state import Ask, NodeState
    from tests.bench.placement.strategies import Scoring

_UNMET: Final = (NEVER * 4, NEVER * 3, NEVER * 2, NEVER)
"""Score of a node by how far it meets the demand: the highest score tells the cause of a refusal too."""
_CAUSES: Final = dict(
    zip(
        _UNMET,
        (RefusalCause.MODEL, RefusalCause.DEVICES, RefusalCause.CPU, RefusalCause.PODS),
        strict=True,
    )
)


class Ranking:
    """Answers which node a pod goes to."""

    def __init__(self, nodes: "Sequence[NodeState]", scoring: "Scoring") -> None:
        self._nodes = nodes
        self._scoring = scoring
        self._changes: list[int] = []
        """Indices of nodes, in the order in which their scores changed."""
        self._ranked: dict[int, _Ranked] = {}
        """Ask -> scores."""

    def changed(self, node: "NodeState") -> None:
        """Note that a node has changed."""
        self._changes.extend(self._scoring.changed(node))

    def best(self, ask: "Ask", memory: int) -> "NodeState | RefusalCause":
        """Return the node with the best score that has the memory, or why none can take the pod."""
        scores = self._fresh(ask)
        passed: list[tuple[int, float]] = []
        found: NodeState | None = None
        while (best := max(scores, default=_UNMET[0])) > NEVER:
            node = self._nodes[self._scoring.pick(scores, best)]
            if node.memory >= memory:
                found = node
                break
            passed.append((node.index, scores[node.index]))
            scores[node.index] = NEVER
        for index, score in passed:
            scores[index] = score
        return found or (RefusalCause.MEMORY if passed else _CAUSES[best])

    def _fresh(self, ask: "Ask") -> list[float]:
        ranked = self._ranked.get(ask.index)
        if ranked is None:
            scores = [self._score(node, ask) for node in self._nodes]
            possible = {index for index, score in enumerate(scores) if score != _UNMET[0]}
            self._ranked[ask.index] = _Ranked(scores, possible, len(self._changes))
            return scores
        scores = ranked.scores
        for index in ranked.possible.intersection(self._changes[ranked.seen :]):
            scores[index] = self._score(self._nodes[index], ask)
        ranked.seen = len(self._changes)
        return scores

    def _score(self, node: "NodeState", ask: "Ask") -> float:
        reached = met(node, ask)
        return self._scoring.score(node, ask) if reached is Met.ALL else _UNMET[reached]


@dataclass(slots=True)
class _Ranked:
    """Scores for one kind of demand."""

    scores: list[float]
    """By node."""
    possible: set[int]
    """Nodes that have the pool and the model."""
    seen: int
    """Changes that are in the scores."""

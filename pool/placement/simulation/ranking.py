"""Scores of nodes by kind of demand, of which only those of changed nodes are computed anew."""

from typing import TYPE_CHECKING, Final

from pool.placement.simulation.node_state import Met, met
from pool.placement.simulation.results import RefusalCause
from pool.placement.simulation.strategies import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.placement.simulation.node_state import Ask, NodeState
    from pool.placement.simulation.strategies import Scoring

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
        self._scores: dict[int, tuple[list[float], int]] = {}
        """Ask -> (score by node, changes that it has seen)."""

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
        known = self._scores.get(ask.index)
        if known is None:
            scores = [NEVER] * len(self._nodes)
            stale: Sequence[NodeState] = self._nodes
        else:
            scores, seen = known
            stale = [self._nodes[index] for index in set(self._changes[seen:])]
        score = self._scoring.score
        for node in stale:
            reached = met(node, ask)
            scores[node.index] = score(node, ask) if reached is Met.ALL else _UNMET[reached]
        self._scores[ask.index] = scores, len(self._changes)
        return scores

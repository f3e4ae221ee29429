"""Strategies by name: the published ones with their rounding, and those of pools.

A strategy scores a node on which a pod fits; the highest score wins, of equal ones the first node.
Source of the published ones: hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Final

from pool.placement.fragmentation.expected_loss import ExpectedLoss
from tests.bench.placement.go_random import GoRandom
from tests.bench.placement.least_fragmentation import LeastFragmentation
from tests.bench.placement.node_state import UNKNOWN, choices, spread_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pool.placement.fragmentation.target_workload import TargetWorkload
    from tests.bench.placement.node_state import Ask, Choice, NodeState

NEVER: Final = -1e300
"""Scores of nodes that cannot take the pod are this or less, scores of others are more."""
_MOST_CPU: Final = 128_000
_MOST_MILLI: Final = 8_000


def first_best(scores: list[float], best: float) -> int:
    """Return the index of the first node with the highest score."""
    return scores.index(best)


def only_itself(node: "NodeState") -> "Iterable[int]":
    return (node.index,)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What a strategy is made of."""

    name: str
    score: "Callable[[NodeState, Ask], float]"
    choose: "Callable[[NodeState, Ask], Choice]"
    pick: Callable[[list[float], float], int] = first_best
    changed: "Callable[[NodeState], Iterable[int]]" = only_itself
    """Notes that a node has changed; returns the indices of all nodes whose scores have."""


@dataclass(frozen=True, slots=True)
class StartState:
    """What a strategy knows beforehand."""

    targets: "Mapping[str, TargetWorkload]"
    """By pool."""
    nodes: "Sequence[NodeState]"
    """As they are at the start."""
    seed: int


def scoring_of(name: str, context: StartState) -> Scoring:
    """Return what a strategy is made of, by its name in `STRATEGIES`."""
    return STRATEGIES[name](context)


def _random(context: StartState) -> Scoring:
    generator = GoRandom(context.seed)

    def choose(node: "NodeState", ask: "Ask") -> "Choice":
        if not ask.is_share:
            return choices(_remaining(node, ask), ask)[0]
        fitting = [i for i, remaining in enumerate(_remaining(node, ask)) if remaining >= ask.milli]
        return ((fitting[generator.below(len(fitting))], ask.milli),)

    def pick(scores: list[float], _best: float) -> int:
        fitting = [index for index, score in enumerate(scores) if score > NEVER]
        return fitting[generator.below(len(fitting))]

    return Scoring("Random", lambda _node, _ask: 0.0, choose, pick)


def _dot_product(_context: StartState) -> Scoring:
    def score(node: "NodeState", ask: "Ask") -> float:
        product = _cpu(node) / _MOST_CPU * (ask.cpu_milli / _MOST_CPU)
        product += _free(node) / _MOST_MILLI * (ask.demand / _MOST_MILLI)
        return int(100.0 * (1 - product / 2))

    return Scoring("DotProd", score, tightest)


def _clustering(_context: StartState) -> Scoring:
    def score(node: "NodeState", ask: "Ask") -> float:
        if ask.rules is None:
            return 0
        filled = 25 * (_MOST_MILLI - _free(node)) // _MOST_MILLI
        if ask.size in node.sizes:
            return filled + (75 if len(node.sizes) == 1 else 50)
        return filled + (0 if node.sizes else 25)

    return Scoring("GpuClustering", score, tightest)


def _packing(_context: StartState) -> Scoring:
    def score(node: "NodeState", ask: "Ask") -> float:
        if ask.rules is None:
            return 0
        left, whole = _remaining(node, ask), ask.rules.whole
        idle = left.count(whole)
        if idle == len(left):
            return max(33 - idle, idle)
        taken = sorted(remaining for remaining in left if remaining >= ask.milli)[
            : ask.devices or None
        ]
        if opened := taken.count(whole):
            return max(50 - opened, 33)
        return max(100 - sum(remaining * 100 // whole for remaining in taken) // 10, 50)

    return Scoring("GpuPacking", score, tightest)


def _best_fit(_context: StartState) -> Scoring:
    def score(node: "NodeState", ask: "Ask") -> float:
        left = (_cpu(node) - ask.cpu_milli) / _MOST_CPU * 0.5
        left += (_free(node) - ask.demand) / _MOST_MILLI * 0.5
        return int((1.0 - left) * 100.0)

    return Scoring("BestFit", score, tightest)


def _fgd(context: StartState) -> Scoring:
    losses = {pool: ExpectedLoss(target) for pool, target in context.targets.items()}

    def loss(node: "NodeState", cpu: int) -> float:
        return sum(
            losses[pool].of(node.model, cpu, remaining)
            for pool, remaining in node.remaining.items()
        )

    def best(node: "NodeState", ask: "Ask") -> "tuple[int, Choice]":
        before = loss(node, node.cpu)
        cpu = node.cpu - ask.cpu_milli
        best_score = -1
        best_choice: Choice = ()
        if ask.rules is None:
            return _sigmoid(before - loss(node, cpu)), ()
        remaining = node.remaining[ask.rules.name]
        for choice in choices(remaining, ask):
            _apply(remaining, choice, 1)
            score = _sigmoid(before - loss(node, cpu))
            _apply(remaining, choice, -1)
            if score > best_score:
                best_score, best_choice = score, choice
        return best_score, best_choice

    return Scoring(
        "FGD", lambda node, ask: best(node, ask)[0], lambda node, ask: best(node, ask)[1]
    )


def _least_fragmentation(context: StartState) -> Scoring:
    values = LeastFragmentation(context.targets, context.nodes)
    return Scoring("LeastFragmentation", values.score, values.choose, changed=values.changed)


def _bin_pack(_context: StartState) -> Scoring:
    """The fullest node."""
    return Scoring("BinPack", lambda node, _ask: -_free(node), tightest)


def _spread(_context: StartState) -> Scoring:
    """The emptiest node, and of its devices the emptiest."""

    def choose(node: "NodeState", ask: "Ask") -> "Choice":
        remaining = _remaining(node, ask)
        if ask.is_share:
            return max(choices(remaining, ask), key=lambda choice: remaining[choice[0][0]])
        if ask.rules is not None and not ask.devices:
            return spread_units(remaining, ask, fullest_first=False)
        return choices(remaining, ask)[0]

    return Scoring("Spread", lambda node, _ask: _free(node), choose)


STRATEGIES: Final[dict[str, Callable[[StartState], Scoring]]] = {
    "Random": _random,
    "DotProd": _dot_product,
    "GpuClustering": _clustering,
    "GpuPacking": _packing,
    "BestFit": _best_fit,
    "FGD": _fgd,
    "BinPack": _bin_pack,
    "Spread": _spread,
    "LeastFragmentation": _least_fragmentation,
}


def tightest(node: "NodeState", ask: "Ask") -> "Choice":
    """Return the way to take devices that leaves the smallest rest."""
    remaining = _remaining(node, ask)
    if ask.is_share:
        return min(choices(remaining, ask), key=lambda choice: remaining[choice[0][0]])
    return choices(remaining, ask)[0]


def _remaining(node: "NodeState", ask: "Ask") -> list[int]:
    return node.remaining[ask.rules.name] if ask.rules is not None else []


def _apply(remaining: list[int], choice: "Choice", sign: int) -> None:
    for position, milli in choice:
        remaining[position] -= sign * milli


def _cpu(node: "NodeState") -> int:
    return node.cpu if node.cpu < UNKNOWN else 0


def _free(node: "NodeState") -> int:
    return sum(sum(remaining) for remaining in node.remaining.values())


def _sigmoid(difference: float) -> int:
    # A difference of -700,000 milli is 700 devices of one node: exp does not overflow below.
    return int(1 / (1 + exp(-difference / 1000)) * 100.0)

"""LeastFragmentation on the nodes of a simulation: the placement that keeps the most of a node's value."""

from typing import TYPE_CHECKING, Final

from pool.placement.fragmentation.capacity_weights import CapacityWeights
from pool.placement.fragmentation.node_value import NodeValue
from tests.bench.placement.node_state import UNKNOWN, choices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pool.placement.fragmentation.target_workload import TargetWorkload
    from tests.bench.placement.node_state import Ask, Choice, NodeState

_STEP: Final = 10
"""Milli to which a difference of values is rounded, so that nodes of nearly one value are filled in their order."""
_Before = tuple[int, float, int, float]
"""Generation of the node, its H, its idle devices, its V."""


class LeastFragmentation:
    """Scores nodes by V(after) - V(before) over the pools of a node."""

    def __init__(
        self, targets: "Mapping[str, TargetWorkload]", nodes: "Sequence[NodeState]"
    ) -> None:
        self._targets = targets
        self._values: dict[tuple[str, str], NodeValue] = {}
        self._before: dict[tuple[str, int], _Before] = {}
        self._capacities = {
            pool: _PoolCapacity(target, pool, [node for node in nodes if node.remaining.get(pool)])
            for pool, target in targets.items()
        }

    def changed(self, node: "NodeState") -> "Iterable[int]":
        """Note that a node has changed; return the indices of all nodes whose scores have."""
        indices = {node.index}
        for pool in node.remaining:
            for index in self._capacities[pool].changed(node):
                indices.add(index)
                self._before.pop((pool, index), None)
        return indices

    def score(self, node: "NodeState", ask: "Ask") -> float:
        """Return the best difference of values, rounded."""
        return self._best(node, ask)[0]

    def choose(self, node: "NodeState", ask: "Ask") -> "Choice":
        """Return the way to take devices that has the best difference."""
        return self._best(node, ask)[1]

    def _best(self, node: "NodeState", ask: "Ask") -> "tuple[float, Choice]":
        after = None if node.cpu == UNKNOWN else node.cpu - ask.cpu_milli
        others = 0.0
        if ask.rules is None or len(node.remaining) > 1:
            for pool in node.remaining:
                if pool != ask.pool:
                    _, filled, idle, before = self._state(node, pool)
                    others += self._value(pool, node.model).of(filled, idle, after) - before
        if ask.rules is None:
            return round(others / _STEP), ()
        pool, whole = ask.rules.name, ask.rules.whole
        left = node.remaining[pool]
        value = self._value(pool, node.model)
        fill = value.fill
        _, filled, idle, before = self._state(node, pool)
        best: tuple[float, Choice] = float("-inf"), ()
        for choice in choices(left, ask):
            filled_after, idle_after = filled, idle
            for position, milli in choice:
                remaining = left[position]
                filled_after += fill[remaining - milli] - fill[remaining]
                idle_after -= remaining == whole
            difference = others + value.of(filled_after, idle_after, after) - before
            score = round(difference / _STEP)
            if score > best[0]:
                best = score, choice
        return best

    def _state(self, node: "NodeState", pool: str) -> _Before:
        key = pool, node.index
        cached = self._before.get(key)
        if cached is None or cached[0] != node.generation:
            value = self._value(pool, node.model)
            left = node.remaining[pool]
            filled = sum(value.fill[remaining] for remaining in left)
            idle = left.count(node.wholes[pool])
            cpu = None if node.cpu == UNKNOWN else node.cpu
            cached = node.generation, filled, idle, value.of(filled, idle, cpu)
            self._before[key] = cached
        return cached

    def _value(self, pool: str, model: str) -> NodeValue:
        key = pool, model
        value = self._values.get(key)
        if value is None:
            capacity = self._capacities[pool]
            value = NodeValue(self._targets[pool], model, capacity.prices, whole=capacity.whole)
            self._values[key] = value
        return value


class _PoolCapacity:
    """Capacity for large pods on the nodes of a pool."""

    def __init__(self, target: "TargetWorkload", pool: str, nodes: "Sequence[NodeState]") -> None:
        self._pool = pool
        self.prices = CapacityWeights(target)
        self.whole = nodes[0].wholes[pool] if nodes else 1
        self._by_node = {node.index: self._of(node) for node in nodes}
        self._free = {node.index: sum(node.remaining[pool]) for node in nodes}
        self._all_free = sum(self._free.values())
        self._total = [
            sum(capacity[index] for capacity in self._by_node.values())
            for index in range(len(self.prices.shapes))
        ]
        self.prices.observe(self._all_free, self._total)

    def changed(self, node: "NodeState") -> "Iterable[int]":
        """Return the nodes that a new price makes worth more or less."""
        free = sum(node.remaining[self._pool])
        self._all_free += free - self._free[node.index]
        self._free[node.index] = free
        before, after = self._by_node[node.index], self._of(node)
        if before != after:
            self._by_node[node.index] = after
            for index, capacity in enumerate(after):
                self._total[index] += capacity - before[index]
        changed = self.prices.observe(self._all_free, self._total)
        if not changed:
            return ()
        return [
            index
            for index, capacity in self._by_node.items()
            if any(capacity[shape] for shape in changed)
        ]

    def _of(self, node: "NodeState") -> tuple[int, ...]:
        idle = node.remaining[self._pool].count(self.whole)
        cpu = None if node.cpu == UNKNOWN else node.cpu
        return self.prices.pod_counts(node.model, idle, cpu)

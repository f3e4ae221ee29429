"""LeastFragmentation on the nodes of a simulation: the placement that keeps the most of a node's value."""

from typing import TYPE_CHECKING, Final

from pool.placement.fragmentation.node_value import HostCounts, NodeValue
from pool.placement.fragmentation.target_workload import WHOLE_DEVICE
from pool.placement.simulation.node_state import UNKNOWN, choices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pool.placement.fragmentation.target_workload import TargetWorkload
    from pool.placement.simulation.node_state import Ask, Choice, NodeState

_STEP: Final = 10
"""Milli to which a difference of values is rounded, so that nodes of nearly one value are filled in their order."""


class LeastFragmentation:
    """Scores nodes by V(after) - V(before) over the pools of a node."""

    def __init__(
        self, targets: "Mapping[str, TargetWorkload]", nodes: "Sequence[NodeState]"
    ) -> None:
        self._targets = targets
        self._hosts = {pool: _hosts(target, nodes, pool) for pool, target in targets.items()}
        self._values: dict[tuple[str, str], NodeValue] = {}

    def score(self, node: "NodeState", ask: "Ask") -> float:
        """Return the best difference of values, rounded."""
        return self._best(node, ask)[0]

    def choose(self, node: "NodeState", ask: "Ask") -> "Choice":
        """Return the way to take devices that has the best difference."""
        return self._best(node, ask)[1]

    def _best(self, node: "NodeState", ask: "Ask") -> "tuple[float, Choice]":
        cpu = None if node.cpu == UNKNOWN else node.cpu
        after = None if cpu is None else cpu - ask.cpu_milli
        others = 0.0
        for pool, rests in node.rests.items():
            if pool != ask.pool:
                value = self._value(pool, node.model)
                others += value.of_state(rests, after) - value.of_state(rests, cpu)
        if ask.rules is None:
            return round(others / _STEP), ()
        rests = node.rests[ask.rules.name]
        value = self._value(ask.rules.name, node.model)
        before = value.of_state(rests, cpu)
        best: tuple[float, Choice] = float("-inf"), ()
        for choice in choices(rests, ask):
            for position, milli in choice:
                rests[position] -= milli
            score = round((others + value.of_state(rests, after) - before) / _STEP)
            for position, milli in choice:
                rests[position] += milli
            if score > best[0]:
                best = score, choice
        return best

    def _value(self, pool: str, model: str) -> NodeValue:
        key = pool, model
        value = self._values.get(key)
        if value is None:
            value = NodeValue(self._targets[pool], model, self._hosts[pool])
            self._values[key] = value
        return value


def _hosts(target: "TargetWorkload", nodes: "Sequence[NodeState]", pool: str) -> HostCounts:
    of_pool = [node for node in nodes if node.rests.get(pool)]
    hosts = {
        shape: sum(
            node.cpu >= shape.cpu_milli
            and shape.takes(node.model)
            and sum(rest >= min(shape.milli, WHOLE_DEVICE) for rest in node.rests[pool])
            >= shape.devices
            for node in of_pool
        )
        for shape, _ in target.shapes
        if shape.devices > 1
    }
    return HostCounts(len(of_pool), hosts)

"""The nodes of a trace as a cluster that places pods: milli of devices, ranked by a strategy.

Without the live index, so that a replay of a large trace takes seconds and published figures come out to the digit.
"""

from typing import TYPE_CHECKING

from pool.placement.fragmentation.target_workload import TargetWorkload
from pool.placement.simulation.engine import run_workload
from pool.placement.simulation.losses import Losses
from pool.placement.simulation.placing_cluster import PlacedPod, PodDemand
from pool.placement.simulation.results import Mode
from tests.bench.placement import causes
from tests.bench.placement.node_state import Asks, Met, NodeState, met
from tests.bench.placement.ranking import Ranking
from tests.bench.placement.strategies import StartState, scoring_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.placement.simulation.engine import Progress
    from pool.placement.simulation.results import IdleCause, RefusalCause, Result
    from tests.bench.placement.node_state import Ask, Choice
    from tests.bench.placement.trace_cluster import Cluster, Workload


def simulate(
    cluster: "Cluster",
    workload: "Workload",
    strategy: str,
    *,
    seed: int = 0,
    mode: Mode = Mode.DROP,
    progress: "Progress | None" = None,
) -> "Result":
    """Place the pods of a workload on nodes of a trace, one after another.

    Args:
        cluster: nodes and pools at the start.
        workload: pods by arrival.
        strategy: a name in `strategies.STRATEGIES`.
        seed: of strategies that draw numbers.
        mode: what becomes of pods that no node can take.
        progress: called now and then with the number of pods that have arrived, and of all.

    Raises:
        KeyError: there is no such strategy, or a pod names a pool that the cluster has not.
    """
    nodes = RankedNodes(cluster, workload, strategy, seed=seed)
    return run_workload(nodes, workload.pods, seed=seed, mode=mode, progress=progress)


class RankedNodes:
    """Nodes, and the pods of one workload on them."""

    def __init__(
        self, cluster: "Cluster", workload: "Workload", strategy: str, *, seed: int
    ) -> None:
        self._pods = workload.pods
        self._asks = Asks(cluster)
        self._ask_by_pod = [self._asks.of(pod) for pod in workload.pods]
        self.demands = [
            PodDemand((ask.index, pod.memory_mib), ask.size, ask.pool, ask.demand)
            for ask, pod in zip(self._ask_by_pod, workload.pods, strict=True)
        ]
        self._nodes = [
            NodeState.of(index, node, self._asks.pools) for index, node in enumerate(cluster.nodes)
        ]
        targets = {**self._measured_targets(), **workload.targets}
        start = StartState(targets, self._nodes, seed)
        self._scoring = scoring_of(strategy, start)
        self.strategy = self._scoring.name
        self._ranking = Ranking(self._nodes, self._scoring)
        self.sizes = cluster.sizes()
        self.node_count = len(cluster.nodes)
        self._losses = Losses(targets)
        for node in self._nodes:
            self._measure(node)
        self.capacity_milli = sum(
            device.capacity * self._asks.pools[device.pool].unit
            for node in cluster.nodes
            for device in node.devices
        )
        self.taken_milli = self.capacity_milli - sum(
            sum(map(sum, node.remaining.values())) for node in self._nodes
        )
        self._placed: dict[int, tuple[NodeState, Choice]] = {}

    @property
    def fragmentation_milli(self) -> float:
        return self._losses.total_milli

    def place(self, number: int) -> "PlacedPod | RefusalCause":
        """Place a pod on the best node."""
        match self._ranking.best(self._ask_by_pod[number], self._pods[number].memory_mib):
            case NodeState() as node:
                return self._take(number, node)
            case cause:
                return cause

    def place_on(self, number: int, node: int) -> PlacedPod | None:
        """Place a pod on a node, if it fits."""
        state, ask = self._nodes[node], self._ask_by_pod[number]
        if state.memory < self._pods[number].memory_mib or met(state, ask) is not Met.ALL:
            return None
        return self._take(number, state)

    def release(self, number: int) -> None:
        """Give back what a pod has, if anything."""
        placed = self._placed.pop(number, None)
        if placed is not None:
            node, choice = placed
            node.release(self._ask_by_pod[number], self._pods[number].memory_mib, choice)
            self._changed(node)

    def notes(self) -> "Sequence[str]":
        """Return nothing: the figures say all."""
        return ()

    def idle(self, unplaced: "Sequence[int]") -> "dict[IdleCause, int]":
        """Return the free milli by cause."""
        pending = {(self._ask_by_pod[number], self._pods[number].memory_mib) for number in unplaced}
        return causes.idle(self._nodes, pending)

    def _take(self, number: int, node: NodeState) -> PlacedPod:
        ask = self._ask_by_pod[number]
        choice = self._scoring.choose(node, ask)
        node.take(ask, self._pods[number].memory_mib, choice)
        self._placed[number] = node, choice
        self._changed(node)
        if not choice:
            return PlacedPod(node.index)
        positions = node.positions[ask.pool]
        return PlacedPod(node.index, tuple(positions[position] for position, _ in choice))

    def _changed(self, node: NodeState) -> None:
        self._ranking.changed(node)
        self._measure(node)

    def _measure(self, node: NodeState) -> None:
        self._losses.measure(node.index, node.remaining, model=node.model, cpu_milli=node.cpu)

    def _measured_targets(self) -> dict[str, TargetWorkload]:
        """Return each pool's target workload as this workload has it; pods without devices count in all."""
        shapes: dict[str, list[Ask]] = {pool: [] for pool in self._asks.pools}
        for ask in self._ask_by_pod:
            for pool in [ask.pool] if ask.rules is not None else shapes:
                shapes[pool].append(ask)
        return {
            pool: TargetWorkload.of(ask.shape for ask in of_pool)
            for pool, of_pool in shapes.items()
        }

"""A workload placed on a cluster in virtual time.

A pure function of its arguments: the same cluster, workload, strategy and seed give the same result.
"""

import heapq
from array import array
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING

from pool.placement.fragmentation.expected_loss import ExpectedLoss
from pool.placement.fragmentation.target_workload import TargetWorkload
from pool.placement.simulation import causes
from pool.placement.simulation.node_state import Asks, Met, NodeState, met
from pool.placement.simulation.ranking import Ranking
from pool.placement.simulation.results import Curve, Mode, RefusalCause, Refused, Result
from pool.placement.simulation.strategies import StartState, scoring_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pool.placement.simulation.model import Cluster, Workload
    from pool.placement.simulation.node_state import Ask, Choice

_REPORTED_EVERY = 256
"""Events between two calls of the progress callback."""
_NOT_PLACED = -1


def simulate(
    cluster: "Cluster",
    workload: "Workload",
    strategy: str,
    *,
    seed: int = 0,
    mode: Mode = Mode.DROP,
    progress: "Callable[[int, int], None] | None" = None,
) -> Result:
    """Place the pods of a workload one after another.

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
    run = _Run(cluster, workload, strategy, seed=seed, mode=mode)
    total = len(workload.pods)
    for number, pod in enumerate(workload.pods):
        run.end_pods_until(pod.arrival_s)
        run.arrive(number)
        if progress is not None and number % _REPORTED_EVERY == 0:
            progress(number, total)
    run.end_pods_until(float("inf"))
    if progress is not None:
        progress(total, total)
    return run.result()


class _Run:
    """The state of one simulation."""

    def __init__(
        self, cluster: "Cluster", workload: "Workload", strategy: str, *, seed: int, mode: Mode
    ) -> None:
        self._pods = workload.pods
        self._mode = mode
        self._seed = seed
        self._asks = Asks(cluster)
        self._ask_by_pod = [self._asks.of(pod) for pod in workload.pods]
        self._nodes = [
            NodeState.of(index, node, self._asks.pools) for index, node in enumerate(cluster.nodes)
        ]
        targets = {**self._measured_targets(), **workload.targets}
        start = StartState(targets, self._nodes, seed)
        self._scoring = scoring_of(strategy, start)
        self._ranking = Ranking(self._nodes, self._scoring)
        self._losses = {pool: ExpectedLoss(target) for pool, target in targets.items()}
        self._loss_by_node = [self._loss(node) for node in self._nodes]
        self._capacity = sum(
            device.capacity * self._asks.pools[device.pool].unit
            for node in cluster.nodes
            for device in node.devices
        )
        self._allocated = self._capacity - sum(
            sum(map(sum, node.rests.values())) for node in self._nodes
        )
        self._arrived = 0
        self._now = 0.0
        self._fragmentation = sum(self._loss_by_node)
        self._curve = Curve(
            time_s=array("d"),
            arrived_milli=array("q"),
            allocated_milli=array("q"),
            fragmentation_milli=array("d"),
            waiting=array("q"),
        )
        self._node_by_pod = array("q", [_NOT_PLACED]) * len(self._pods)
        self._choice_by_pod: dict[int, Choice] = {}
        self._waited_s = array("d", [float("nan")]) * len(self._pods)
        self._ends: list[tuple[float, int]] = []
        self._waiting: dict[tuple[int, int], deque[int]] = {}
        """(ask, memory) -> pods by arrival."""
        self._waiting_count = 0
        self._refused: dict[int, RefusalCause] = {}
        """Pod -> cause of its first refusal."""
        self._first_refusal: float | None = None
        self._busy_s: defaultdict[str, float] = defaultdict(float)

    def end_pods_until(self, time_s: float) -> None:
        """End the pods whose time is over, and place waiting ones where they were."""
        while self._ends and self._ends[0][0] <= time_s:
            self._now, number = heapq.heappop(self._ends)
            node = self._nodes[self._node_by_pod[number]]
            ask, pod = self._ask_by_pod[number], self._pods[number]
            choice = self._choice_by_pod[number]
            node.release(ask, pod.memory_mib, choice)
            taken = sum(milli for _, milli in choice)
            self._allocated -= taken
            self._changed(node)
            self._retry(node)
            self._record()

    def arrive(self, number: int) -> None:
        """Place a pod, or have it wait."""
        pod, ask = self._pods[number], self._ask_by_pod[number]
        self._now = max(self._now, pod.arrival_s)
        self._arrived += ask.demand
        match self._ranking.best(ask, pod.memory_mib):
            case NodeState() as node:
                self._place(number, node)
            case cause:
                self._refuse(number, cause)
        self._record()

    def result(self) -> Result:
        """Return what was found."""
        asked = Counter(ask.size for ask in self._ask_by_pod)
        unplaced = [number for number, node in enumerate(self._node_by_pod) if node == _NOT_PLACED]
        refused = Counter(self._ask_by_pod[number].size for number in unplaced)
        pending = {(self._ask_by_pod[number], self._pods[number].memory_mib) for number in unplaced}
        return Result(
            strategy=self._scoring.name,
            seed=self._seed,
            capacity_milli=self._capacity,
            curve=self._curve,
            nodes=self._node_by_pod,
            devices=tuple(self._devices_of(number) for number in range(len(self._pods))),
            waited_s=self._waited_s,
            refused={size: Refused(asked[size], refused[size]) for size in sorted(asked)},
            refusal_causes=dict(Counter(self._refused.values())),
            first_refusal=self._first_refusal,
            idle_milli=causes.idle(self._nodes, pending),
            busy_device_s=dict(self._busy_s),
        )

    def _place(self, number: int, node: NodeState) -> None:
        pod, ask = self._pods[number], self._ask_by_pod[number]
        choice = self._scoring.choose(node, ask)
        node.take(ask, pod.memory_mib, choice)
        taken = sum(milli for _, milli in choice)
        self._allocated += taken
        self._node_by_pod[number] = node.index
        self._choice_by_pod[number] = choice
        self._waited_s[number] = self._now - pod.arrival_s
        if pod.duration_s is not None:
            heapq.heappush(self._ends, (self._now + pod.duration_s, number))
            if ask.rules is not None:
                self._busy_s[ask.pool] += pod.duration_s * taken / ask.rules.whole
        self._changed(node)

    def _refuse(self, number: int, cause: RefusalCause) -> None:
        pod, ask = self._pods[number], self._ask_by_pod[number]
        if self._first_refusal is None:
            self._first_refusal = self._arrived / self._capacity if self._capacity else 0.0
        self._refused[number] = cause
        if self._mode is Mode.WAIT:
            self._waiting.setdefault((ask.index, pod.memory_mib), deque()).append(number)
            self._waiting_count += 1

    def _retry(self, node: NodeState) -> None:
        """Place waiting pods, by arrival. None fits on any other node, since none did before."""
        heads = [(pods[0], key) for key, pods in self._waiting.items()]
        heapq.heapify(heads)
        while heads:
            number, key = heapq.heappop(heads)
            pod, ask = self._pods[number], self._ask_by_pod[number]
            if node.memory < pod.memory_mib or met(node, ask) is not Met.ALL:
                continue  # what is placed meanwhile makes no room for this kind
            self._place(number, node)
            self._waiting_count -= 1
            pods = self._waiting[key]
            pods.popleft()
            if pods:
                heapq.heappush(heads, (pods[0], key))
            else:
                del self._waiting[key]

    def _changed(self, node: NodeState) -> None:
        self._ranking.changed(node)
        loss = self._loss(node)
        self._fragmentation += loss - self._loss_by_node[node.index]
        self._loss_by_node[node.index] = loss

    def _loss(self, node: NodeState) -> float:
        return sum(
            self._losses[pool].of(node.model, node.cpu, rests) for pool, rests in node.rests.items()
        )

    def _record(self) -> None:
        curve = self._curve
        curve.time_s.append(self._now)
        curve.arrived_milli.append(self._arrived)
        curve.allocated_milli.append(self._allocated)
        curve.fragmentation_milli.append(self._fragmentation)
        curve.waiting.append(self._waiting_count)

    def _devices_of(self, number: int) -> tuple[int, ...]:
        choice = self._choice_by_pod.get(number)
        if not choice:
            return ()
        node = self._nodes[self._node_by_pod[number]]
        positions = node.positions[self._ask_by_pod[number].pool]
        return tuple(positions[position] for position, _ in choice)

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

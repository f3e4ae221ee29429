"""A workload placed on a cluster in virtual time: arrivals, ends, the queue between them, and figures of each step.

A pure function of its arguments, as far as the cluster is: the same cluster and workload give the same result.
"""

import heapq
from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING

from pool.placement.simulation.placing_cluster import PlacedPod
from pool.placement.simulation.results import Curve, Mode, RefusalCause, Refused, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from pool.placement.simulation.model import SimulatedPod
    from pool.placement.simulation.placing_cluster import PlacingCluster

    Progress = Callable[[int, int], None]
    """Called with how many pods have arrived, and of how many."""

_REPORTED_EVERY = 256
"""Events between two calls of the progress callback."""
_NOT_PLACED = -1


def run_workload(
    cluster: "PlacingCluster",
    pods: "Sequence[SimulatedPod]",
    *,
    seed: int = 0,
    mode: Mode = Mode.DROP,
    progress: "Progress | None" = None,
) -> Result:
    """Place the pods of a workload one after another.

    Args:
        cluster: at the start; afterwards it is as the workload leaves it.
        pods: by arrival.
        seed: of the cluster's strategy, for the result.
        mode: what becomes of pods that no node can take.
        progress: called now and then.
    """
    run = _Run(cluster, pods, seed=seed, mode=mode)
    total = len(pods)
    for number, pod in enumerate(pods):
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
        self, cluster: "PlacingCluster", pods: "Sequence[SimulatedPod]", *, seed: int, mode: Mode
    ) -> None:
        self._cluster = cluster
        self._pods = pods
        self._demands = cluster.demands
        self._mode = mode
        self._seed = seed
        self._capacity = cluster.capacity_milli
        self._allocated = cluster.taken_milli
        self._arrived = 0
        self._now = 0.0
        self._curve = Curve(
            time_s=array("d"),
            arrived_milli=array("q"),
            allocated_milli=array("q"),
            fragmentation_milli=array("d"),
            waiting=array("q"),
        )
        self._node_by_pod = array("q", [_NOT_PLACED]) * len(pods)
        self._devices_by_pod: dict[int, tuple[int, ...]] = {}
        self._waited_s = array("d", [float("nan")]) * len(pods)
        self._ends: list[tuple[float, int]] = []
        self._waiting: dict[Hashable, deque[int]] = {}
        """Kind -> pods by arrival."""
        self._waiting_count = 0
        self._refused: dict[int, RefusalCause] = {}
        """Pod -> cause of its first refusal."""
        self._first_refusal: float | None = None

    def end_pods_until(self, time_s: float) -> None:
        """End the pods whose time is over, and place waiting ones where they were."""
        while self._ends and self._ends[0][0] <= time_s:
            self._now, number = heapq.heappop(self._ends)
            self._cluster.release(number)
            self._allocated -= self._demands[number].milli
            self._retry(self._node_by_pod[number])
            self._record()

    def arrive(self, number: int) -> None:
        """Place a pod, or have it wait."""
        self._now = max(self._now, self._pods[number].arrival_s)
        self._arrived += self._demands[number].milli
        match self._cluster.place(number):
            case PlacedPod() as placed:
                self._note(number, placed)
            case cause:
                self._refuse(number, cause)
        self._record()

    def result(self) -> Result:
        """Return what was found."""
        asked = Counter(demand.size for demand in self._demands)
        unplaced = [number for number, node in enumerate(self._node_by_pod) if node == _NOT_PLACED]
        refused = Counter(self._demands[number].size for number in unplaced)
        return Result(
            strategy=self._cluster.strategy,
            seed=self._seed,
            capacity_milli=self._capacity,
            curve=self._curve,
            nodes=self._node_by_pod,
            devices=tuple(
                self._devices_by_pod.get(number, ()) for number in range(len(self._pods))
            ),
            waited_s=self._waited_s,
            refused={size: Refused(asked[size], refused[size]) for size in sorted(asked)},
            refusal_causes=dict(Counter(self._refused.values())),
            first_refusal=self._first_refusal,
            idle_milli=self._cluster.idle(unplaced),
        )

    def _note(self, number: int, placed: PlacedPod) -> None:
        pod, demand = self._pods[number], self._demands[number]
        self._allocated += demand.milli
        self._node_by_pod[number] = placed.node
        self._devices_by_pod[number] = placed.devices
        self._waited_s[number] = self._now - pod.arrival_s
        if pod.duration_s is not None:
            heapq.heappush(self._ends, (self._now + pod.duration_s, number))

    def _refuse(self, number: int, cause: RefusalCause) -> None:
        if self._first_refusal is None:
            self._first_refusal = self._arrived / self._capacity if self._capacity else 0.0
        self._refused[number] = cause
        if self._mode is Mode.WAIT and cause is not RefusalCause.DENIED:
            self._waiting.setdefault(self._demands[number].kind, deque()).append(number)
            self._waiting_count += 1
        else:
            self._cluster.release(number)

    def _retry(self, node: int) -> None:
        """Place waiting pods, by priority and arrival. None fits on any other node, since none did before."""
        heads = [(self._queue_order(pods[0]), kind) for kind, pods in self._waiting.items()]
        heapq.heapify(heads)
        while heads:
            (_, number), kind = heapq.heappop(heads)
            placed = self._cluster.place_on(number, node)
            if placed is None:
                continue  # what is placed meanwhile frees no capacity for this kind
            self._note(number, placed)
            self._waiting_count -= 1
            pods = self._waiting[kind]
            pods.popleft()
            if pods:
                heapq.heappush(heads, (self._queue_order(pods[0]), kind))
            else:
                del self._waiting[kind]

    def _queue_order(self, number: int) -> tuple[int, int]:
        return -self._demands[number].priority, number

    def _record(self) -> None:
        curve = self._curve
        curve.time_s.append(self._now)
        curve.arrived_milli.append(self._arrived)
        curve.allocated_milli.append(self._allocated)
        curve.fragmentation_milli.append(self._cluster.fragmentation_milli)
        curve.waiting.append(self._waiting_count)

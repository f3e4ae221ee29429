"""A snapshot as the cluster of a workload: each pod goes the server's own way, and is bound on the snapshot.

A pod is admitted with its reservation by the webhook's functions, and placed by `pool.what_if.trial`; its end releases
its units. Pods that wait in the snapshot are
left out, and what running pods have stays taken.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from admission.decision import Denied
from api.kinds.gpupool import SlicePlacement
from api.names import PodUid
from cli.simulation import pod_scheduling
from cli.simulation.workload import refusal_causes
from cli.simulation.workload.free_devices import FreeDevices, left_out
from pool.layout import most_units_of_a_device
from pool.model import Constraints, PodPhase, UnitlessPod
from pool.placement.fragmentation.recent_demand import RequestedShape, target_shape, unit_milli
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from pool.placement.simulation.placing_cluster import PlacedPod, PodDemand
from pool.placement.simulation.results import RefusalCause
from pool.placement.unit_request import request_by_containers
from pool.value_ranking import rank_nodes
from pool.what_if.exclusion import exclusion_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from api.names import NodeName
    from cli.simulation.pod_file import NewPod
    from cli.simulation.snapshot import Snapshot
    from pool.compute_resources import ComputeResources
    from pool.placement.planner import Placed
    from pool.placement.simulation.model import SimulatedPod
    from pool.placement.simulation.results import IdleCause

POOL_SPEC: Final = "PoolSpec"
"""Stands for the strategy of each pool's own spec."""
_RANKED_EVERY: Final = 16
"""Changes after which nodes are valued again at the latest; the server does so every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPod:
    """A pod of a workload as it is created."""

    simulated: "SimulatedPod"
    asked: "NewPod"
    creator: "pod_scheduling.PodCreator"
    requests: "ComputeResources"
    kind: "Hashable"
    """Equal for pods with equal specs."""


@final
class SnapshotCluster:
    """The pods of one workload on a snapshot that is theirs alone."""

    def __init__(
        self, snapshot: "Snapshot", pods: "Sequence[WorkloadPod]", *, strategy: str = POOL_SPEC
    ) -> None:
        """Take a snapshot over; it changes from now on.

        Args:
            snapshot: the cluster.
            pods: by arrival.
            strategy: for reports; the pools of the snapshot have it already.
        """
        self.strategy = strategy
        self.placed: dict[int, Placed] = {}
        """Where pods are now, with their units by name; for pods that name a pool."""
        self.denials: dict[int, Denied] = {}
        """Pod -> why admission denies it."""
        self._snapshot = snapshot
        self._pods = pods
        waiting = [
            pod.uid for pod in snapshot.state.reader.pods.all() if pod.phase is PodPhase.PENDING
        ]
        for uid in waiting:
            snapshot.state.discard_pod(uid)
        self._left_out = len(waiting)
        by_kind: dict[Hashable, PodDemand] = {}
        for pod in pods:
            if pod.kind not in by_kind:
                by_kind[pod.kind] = self._demand(pod)
        self.demands = [by_kind[pod.kind] for pod in pods]
        self._nodes = sorted(snapshot.index.nodes)
        self._position = {name: position for position, name in enumerate(self._nodes)}
        self._devices = FreeDevices(snapshot, self._targets())
        self.sizes = self._devices.sizes()
        self.node_count = len(self._devices.nodes)
        self.capacity_milli = self._devices.capacity_milli
        self.taken_milli = self.capacity_milli - self._devices.free_milli()
        self._node_of: dict[int, NodeName] = {}
        self._changes = 0
        self._ranked_s = 0.0

    @property
    def fragmentation_milli(self) -> float:
        return self._devices.fragmentation_milli

    def place(self, number: int) -> PlacedPod | RefusalCause:
        """Admit a pod that arrives, and bind it where a node takes it."""
        pod, snapshot = self._pods[number], self._snapshot
        self._rank(pod.simulated.arrival_s)
        decision = pod_scheduling.admit(pod.asked, snapshot, pod.creator)
        if isinstance(decision, Denied):
            self.denials[number] = decision
            return RefusalCause.DENIED
        question = pod_scheduling.question_of(pod.asked, snapshot)
        if question is None:
            return self._bind_plain(number, self._nodes) or self._cause_of_plain(pod)
        snapshot.state.observe_pod(question.pod.facts, snapshot.admission.now())
        placed = self._bind(number, question, None)
        if placed is not None:
            return placed
        # The server keeps the units for the pool's ttl, in which a node with CPU may come.
        snapshot.state.release(question.uid)
        return self._cause(question)

    def place_on(self, number: int, node: int) -> PlacedPod | None:
        """Bind a waiting pod to a node, if that takes it now."""
        names = self._nodes[node : node + 1]
        question = pod_scheduling.question_of(self._pods[number].asked, self._snapshot)
        if question is None:
            return self._bind_plain(number, names)
        return self._bind(number, question, names)

    def release(self, number: int) -> None:
        """Delete a pod, bound or not."""
        pod, snapshot = self._pods[number], self._snapshot
        node, uid = self._node_of.pop(number, None), PodUid(pod.asked.pod.metadata.uid)
        if self.demands[number].pool:
            snapshot.state.discard_pod(uid)
        else:
            snapshot.state.discard_unitless(uid)
        self.placed.pop(number, None)
        if node is not None:
            self._changed(node)

    def notes(self) -> list[str]:
        """Say what of the cluster is left out, and which pods admission denied."""
        found = list(left_out(self._snapshot))
        if self._left_out:
            found.append(f"pods that wait in the cluster are left out: {self._left_out}")
        by_reason: dict[tuple[str, str], list[int]] = {}
        for number, denied in self.denials.items():
            key = self.demands[number].pool, denied.reason.value
            by_reason.setdefault(key, []).append(number)
        found += [
            f"pods that admission denies: {len(numbers)}, the first is"
            f" {self._pods[numbers[0]].simulated.name}: {self.denials[numbers[0]].text}"
            for numbers in by_reason.values()
        ]
        return found

    def idle(self, unplaced: "Sequence[int]") -> "dict[IdleCause, int]":
        """Return the free milli by cause."""
        pending: dict[Hashable, pod_scheduling.PoolQuestion] = {}
        for number in unplaced:
            pod = self._pods[number]
            question = pod_scheduling.question_of(pod.asked, self._snapshot)
            if question is not None and number not in self.denials:
                pending[pod.kind] = question
        return refusal_causes.idle_causes(self._snapshot, self._devices, list(pending.values()))

    def _bind(
        self, number: int, question: "pod_scheduling.PoolQuestion", names: "list[NodeName] | None"
    ) -> PlacedPod | None:
        chosen = pod_scheduling.choose_node(question, self._snapshot, names)
        if chosen is None:
            return None
        pod_scheduling.bind(question, chosen.placed, self._snapshot)
        self.placed[number] = chosen.placed
        self._set_node(number, chosen.placed.node)
        return PlacedPod(self._position[chosen.placed.node], self._devices.positions(chosen.placed))

    def _bind_plain(self, number: int, names: "list[NodeName]") -> PlacedPod | None:
        """Bind a pod without units where most CPU is left, as kube-scheduler prefers by default."""
        pod, snapshot = self._pods[number], self._snapshot
        constraints = _constraints(pod)
        best: tuple[int, NodeName] | None = None
        for name in names:
            if snapshot.index.shortage(pod.requests, name):
                continue
            cpu = snapshot.index.free_cpu_and_memory(name)[0] or 0
            if (best is None or cpu > best[0]) and not exclusion_of(
                snapshot.index.nodes[name], constraints
            ):
                best = cpu, name
        if best is None:
            return None
        uid = PodUid(pod.asked.pod.metadata.uid)
        snapshot.state.observe_unitless(UnitlessPod(uid, best[1], pod.requests))
        self._set_node(number, best[1])
        return PlacedPod(self._position[best[1]])

    def _set_node(self, number: int, node: "NodeName") -> None:
        self._node_of[number] = node
        self._changed(node)

    def _changed(self, node: "NodeName") -> None:
        self._changes += 1
        self._devices.measure(node)

    def _rank(self, now_s: float) -> None:
        """Value nodes again for strategy LeastFragmentation, as the server does every few seconds."""
        if now_s > self._ranked_s or self._changes >= _RANKED_EVERY:
            rank_nodes(self._snapshot.index)
            self._ranked_s, self._changes = now_s, 0

    def _cause(self, question: "pod_scheduling.PoolQuestion") -> RefusalCause:
        nodes = self._snapshot.index.state(question.pool.name).devices_by_node
        shortages = (refusal_causes.shortage_of(question, node, self._snapshot) for node in nodes)
        return refusal_causes.cause_of(max(shortages, default=refusal_causes.Shortage.ACCESS))

    def _cause_of_plain(self, pod: WorkloadPod) -> RefusalCause:
        snapshot, constraints = self._snapshot, _constraints(pod)
        shortages = [
            refusal_causes.shortage_of_resources(snapshot.index, name, pod.requests)
            for name in self._nodes
            if not exclusion_of(snapshot.index.nodes[name], constraints)
        ]
        return refusal_causes.cause_of(max(shortages, default=refusal_causes.Shortage.ACCESS))

    def _demand(self, pod: WorkloadPod) -> PodDemand:
        question, priority = (
            pod_scheduling.question_of(pod.asked, self._snapshot),
            pod.asked.pod.spec.priority or 0,
        )
        if question is None:
            return PodDemand(pod.kind, "cpu only", priority=priority)
        pool, units = question.pool, question.demand.units
        per_device = most_units_of_a_device(pool)
        is_share = pool.slice_placement is SlicePlacement.SAME_DEVICE and units < per_device
        return PodDemand(
            pod.kind,
            "share" if is_share else str(-(-units // per_device)),
            pool.name,
            units * unit_milli(pool),
            priority,
        )

    def _targets(self) -> dict[str, TargetWorkload]:
        """Return each pool's part of the workload; pods without units count in all."""
        pools = self._snapshot.index.pools()
        shapes: dict[str, list[TargetShape]] = {pool.name: [] for pool in pools}
        for pod in self._pods:
            question = pod_scheduling.question_of(pod.asked, self._snapshot)
            cpu = pod.requests.cpu_milli
            if question is None:
                for of_pool in shapes.values():
                    of_pool.append(TargetShape(cpu, 0, 0))
            else:
                asked = RequestedShape(request_by_containers(question.demand), pod.requests)
                shapes[question.pool.name].append(target_shape(question.pool, asked))
        return {pool: TargetWorkload.of(of_pool) for pool, of_pool in shapes.items()}


def _constraints(pod: WorkloadPod) -> Constraints:
    """Return the constraints of a pod without a pool."""
    spec = pod.asked.pod.spec
    return Constraints(
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations or (),
    )

"""Planning of reservations at admission: a placement, or the reason why nothing is reserved.

It only reads. The rules about which pods may reserve are `pool.admission_rules`'s;
`pool.allocation_state` carries plans out.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from pool import admission_rules
from pool.errors import InvariantViolatedError
from pool.index.cache_fit import best_node, devices_for
from pool.model import Capacity
from pool.peer_fit import peer_fit
from pool.placement.planner import Placed, may_go_to, plan_devices
from pool.placement.unit_counts import fault_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.names import NodeName, PodUid
    from pool.index.reader import IndexReader
    from pool.model import Constraints, Demand, PeerTest, PodFacts, PoolFacts
    from pool.pods.observed import ObservedPods
    from pool.reservations.ledger import ReservationLedger


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No node has units that the pod may reserve now."""

    requested: int
    capacity: Capacity
    largest_node: int
    """Units of the pool's largest node, taken or not."""
    deferral: admission_rules.Deferral | None = None
    """Why the pod may not reserve units that it might get once it is stored; None where there are none."""


@final
class AdmissionPlanner:
    """Plans reservations for pods that the API server has not stored yet."""

    def __init__(
        self,
        index: "IndexReader",
        ledger: "ReservationLedger",
        pods: "ObservedPods",
        *,
        backoff: "admission_rules.AdmissionBackoff",
    ) -> None:
        self._index = index
        self._ledger = ledger
        self._pods = pods
        self._backoff = backoff

    def plan(
        self,
        pool: "PoolFacts",
        demand: "Demand",
        constraints: "Constraints",
        *,
        incoming: admission_rules.IncomingPod = admission_rules.UNKNOWN_POD,
    ) -> Placed | Exhausted:
        """Choose a node and units for a pod that is not stored yet, or return why nothing is reserved."""
        state = self._index.state_for(pool.name, demand)
        node = self._best_node(pool, demand, constraints, now=incoming.now)
        if node is None:
            fits = self._fits_once_stored(pool, demand, constraints, now=incoming.now)
            deferral = admission_rules.Deferral.UNCONFIRMED if fits else None
        else:
            deferral = self._deferral_of(pool, demand, incoming)
        if node is None or deferral is not None:
            return Exhausted(demand.units, state.capacity(), state.largest_node(), deferral)
        return self._placed(pool, demand, node)

    def plan_stored(
        self,
        pool: "PoolFacts",
        pod: "PodFacts",
        constraints: "Constraints",
        *,
        ahead: "Mapping[tuple[int, int], int]",
        now: float,
    ) -> Placed | None:
        """Choose a node and units for a pod that waits, unless pods ahead of it might not fit any more.

        Args:
            pool: that the pod requests.
            pod: a stored pod without a reservation.
            constraints: of the pod on its node.
            ahead: (priority, units) -> number of the waiting pods that go first.
            now: Clock.monotonic() seconds.
        """
        node = self._best_node(pool, pod.demand, constraints, now=now, pod=pod)
        if node is None:
            return None
        nodes_by_available, requested = (
            self._index.state(pool.name).nodes_by_available(),
            pod.demand.units,
        )
        if ahead and not admission_rules.leaves_capacity(
            nodes_by_available, ahead, requested=requested, priority=pod.priority
        ):
            return None
        return self._placed(pool, pod.demand, node)

    def _best_node(
        self,
        pool: "PoolFacts",
        demand: "Demand",
        constraints: "Constraints",
        *,
        now: float,
        pod: "PodFacts | None" = None,
    ) -> "NodeName | None":
        """Return the best node; of a stored pod, only one that has its CPU and memory, too."""
        index, state = self._index, self._index.state_for(pool.name, demand)
        fit = peer_fit(index, pool.name, constraints)
        tests = fit.tests() if fit is not None else ()

        def accepts(node: "NodeName") -> bool:
            if not self._may_go_to(node, constraints, tests):
                return False
            if pod is not None and not self._index.has_capacity(pod, node):
                return False
            claimed = self._nominated_units(pool.resource, node, now)
            if not claimed:
                return True
            summary = state.node(node)
            # Where sets are constrained, any unit may be one that completes the set for the nominated pod.
            return (
                summary is not None
                and (summary.unit_counts is None or not summary.unit_counts.devices.is_constrained)
                and summary.free - claimed >= demand.units
            )

        if fit is None or not constraints.has_preferences:
            return best_node(index, pool.name, demand, accepts=accepts)
        # The pod's preferences go before the pool's strategy, which decides among the nodes that they put first.
        fitting: list[NodeName] = []

        def note(node: "NodeName") -> bool:
            if accepts(node):
                fitting.append(node)
            return False  # so that all nodes are asked about

        best_node(index, pool.name, demand, accepts=note)
        return best_node(index, pool.name, demand, accepts=fit.preferred(fitting).__contains__)

    def _placed(self, pool: "PoolFacts", demand: "Demand", node: "NodeName") -> Placed:
        rules = self._index.device_rules(pool.name, node)
        entries = devices_for(self._index, pool.name, demand, node=node)
        devices = plan_devices(entries, demand, rules)
        if devices is None:
            raise InvariantViolatedError(f"node {node} has free units that cannot be allocated")
        lost = self._index.state_for(pool.name, demand).value_lost(demand, node)
        return Placed(pool.name, node, devices, value_lost=lost)

    def _may_go_to(
        self, node: "NodeName", constraints: "Constraints", tests: "Sequence[PeerTest]" = ()
    ) -> bool:
        facts = self._index.nodes.get(node)
        return (
            facts is not None
            and may_go_to(facts, constraints)
            and (not tests or all(test(facts) for _, test in tests))
        )

    def _fits_once_stored(
        self, pool: "PoolFacts", demand: "Demand", constraints: "Constraints", *, now: float
    ) -> bool:
        """Say whether units reserved for pods that are not observed yet would suffice."""
        if not self._ledger.has_unconfirmed():
            return False
        state = self._index.state_for(pool.name, demand)
        request = state.request_of(demand)
        return any(
            node.unconfirmed
            and node.is_placeable
            and (node.unit_counts is None or fault_of(node.unit_counts, request) is None)
            and node.available - self._nominated_units(pool.resource, name, now) >= demand.units
            and self._may_go_to(name, constraints)
            for name, node in state.nodes().items()
        )

    def _deferral_of(
        self, pool: "PoolFacts", demand: "Demand", incoming: admission_rules.IncomingPod
    ) -> admission_rules.Deferral | None:
        state, namespace, requested = self._index.state(pool.name), incoming.namespace, demand.units
        waiting = self._pods.pending.demands(pool.resource)
        if waiting and not admission_rules.leaves_capacity(
            state.nodes_by_available(), waiting, requested=requested, priority=incoming.priority
        ):
            return admission_rules.Deferral.WAITING_PODS
        reserved = self._ledger.unconfirmed_units(pool.name, namespace)
        if reserved and reserved + requested > admission_rules.share_of(state.capacity().total):
            return admission_rules.Deferral.SHARE
        if not self._backoff.is_over(pool.name, namespace, incoming.now):
            return admission_rules.Deferral.BACKOFF
        return None

    def _nominated_units(self, resource: str, node: "NodeName", now: float) -> int:
        """Count the units that preemption freed there for pods without a reservation there."""
        pods = self._pods.nominated(resource, node, now)
        return sum(pod.demand.units for pod in pods if not self._holds_on(pod.uid, node))

    def _holds_on(self, uid: "PodUid", node: "NodeName") -> bool:
        reservation = self._ledger.of_pod(uid)
        return reservation is not None and reservation.node == node

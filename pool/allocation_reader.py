"""Reading side of the allocation state: plans for pods, and queries on pods and reservations.

Every method is synchronous and changes nothing. A plan is valid until the next `await`: hand it to
`pool.allocation_state` before that, or plan again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from api.kinds.gpupool import Reserve
from api.names import PodUid, ReservationId
from pool.admission_planner import AdmissionPlanner
from pool.errors import InvariantViolatedError
from pool.index.cache_fit import devices_for, is_limited
from pool.index.node_view import refusal_of
from pool.model import PodPhase, UnitlessPod
from pool.peer_fit import with_peer_tests
from pool.placement.device_choice import fits
from pool.placement.planner import Placed, PlacementRefused, complies_with, is_intact, plan_devices
from pool.pods.reported import is_complete
from pool.refusal import NodeReason, NodeRefusal
from pool.reservations.conflicts import free_units_without, units_within_reach
from pool.reservations.reservation import Reservation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from api.names import DeviceName, NodeName, UnitId
    from pool.index.devices import DeviceEntry
    from pool.index.reader import IndexReader
    from pool.model import Constraints, Demand, PodFacts, PoolFacts
    from pool.placement.device_rules import Counts
    from pool.pods.observed import ObservedPods
    from pool.pods.pod_claims import PodClaims
    from pool.reservations.ledger import ReservationLedger


@dataclass(frozen=True, slots=True)
class AlreadyBound:
    """The pod is bound to a node, or its Binding was sent."""

    node: "NodeName"
    reservation: Reservation | None
    """None once the watch has delivered the binding."""


@final
class AllocationReader:
    """Plans and queries over the index, the ledger, and the pods as observed and reported.

    `ledger`, `pods`, `pod_claims` and `admission` are read through it; the allocation state alone changes them.
    """

    def __init__(
        self,
        index: "IndexReader",
        ledger: "ReservationLedger",
        pods: "ObservedPods",
        *,
        pod_claims: "PodClaims",
        admission: AdmissionPlanner,
    ) -> None:
        """Take the parts of an allocation state.

        Args:
            index: the device index.
            ledger: the live reservations.
            pods: the observed pods.
            pod_claims: the claims of bound pods, and what their nodes report.
            admission: plans reservations.
        """
        self._index = index
        self.ledger = ledger
        self.pods = pods
        self.pod_claims = pod_claims
        self.admission = admission

    def plan_on(self, node: "NodeName", pool: "PoolFacts", demand: "Demand") -> Placed | None:
        """Choose free units of a node for a pod that the node was added for; None where they do not suffice.

        The node's startup taint, which keeps other pods away, is no obstacle.
        """
        summary = self._index.state_for(pool.name, demand).node(node)
        if summary is None or summary.unaccounted:
            return None
        if summary.closed not in {None, NodeReason.NODE_STARTING}:
            return None
        entries = devices_for(self._index, pool.name, demand, node=node)
        devices = plan_devices(entries, demand, self._index.device_rules(pool.name, node))
        return None if devices is None else Placed(pool.name, node, devices)

    def plan_bind(
        self, node: "NodeName", pool: "PoolFacts", demand: "Demand", *, uid: "PodUid"
    ) -> Placed | PlacementRefused | AlreadyBound:
        """Choose the pod's units on the node that kube-scheduler chose.

        The pod's own reservation there is used while it is intact; otherwise units are chosen again, its own counted
        as free. An intact reservation does not help where an unaccounted pod may have its units.
        """
        bound = self.bound_to(uid)
        if bound is not None:
            return bound
        reservation = self.ledger.of_pod(uid)
        refusal = self.refusal_on(node, pool, demand, uid=uid)
        if refusal is not None:
            return PlacementRefused(node, refusal)
        entries = devices_for(self._index, pool.name, demand, node=node)
        own = self._index.claims.exclusive_masks(reservation.id) if reservation else {}
        rules = self._index.device_rules(pool.name, node)
        if (
            reservation is not None
            and (reservation.node, reservation.pool) == (node, pool.name)
            and reservation.demand == demand
            and is_intact(reservation.devices, own, entries)
            and complies_with(rules, reservation.devices, entries=entries, demand=demand)
        ):
            lost = self._value_lost(pool, node, demand, own=own, uid=uid)
            return Placed(pool.name, node, reservation.devices, value_lost=lost)
        devices = plan_devices(entries, demand, rules, own=own)
        if devices is None:
            within_reach = units_within_reach(
                entries,
                lambda free: self._can_serve(free, pool, demand, node=node),
                own=reservation,
                index=self._index,
                ledger=self.ledger,
            )
            devices = plan_devices(entries, demand, rules, own=within_reach)
        if devices is None:
            raise InvariantViolatedError(f"node {node} has free units that cannot be allocated")
        lost = self._value_lost(pool, node, demand, own=own, uid=uid)
        return Placed(pool.name, node, devices, value_lost=lost)

    def _value_lost(
        self,
        pool: "PoolFacts",
        node: "NodeName",
        demand: "Demand",
        *,
        own: "Mapping[DeviceName, int]",
        uid: "PodUid",
    ) -> int | None:
        """Return the milli by which a pod lowers the value of a node, against a node without its reservation.

        None where the nodes of the pool are not ranked by that.
        """
        state = self._index.state_for(pool.name, demand)
        if state.ranking is None:
            return None
        remaining = self._index.remaining_capacity(pool, node, own=own, uid=uid)
        return state.ranking.value_lost(state.request_of(demand), remaining)

    def refusal_on(
        self, node: "NodeName", pool: "PoolFacts", demand: "Demand", *, uid: "PodUid | None" = None
    ) -> NodeRefusal | None:
        """Return why a node cannot take a pod, the units of its own reservation counted as free.

        Views answer this for pods without a reservation there; this is for the one node that differs.
        """
        state = self._index.state_for(pool.name, demand)
        summary = state.node(node)
        if summary is None:
            return NodeRefusal(reason=NodeReason.NODE_NOT_IN_POOL, requested=demand.units)
        reservation = self.ledger.of_pod(uid) if uid is not None else None
        if (
            reservation is not None
            and reservation.node == node
            and reservation.phase.is_confirmed  # as long as it is not, its units count as free
        ):
            entries = devices_for(self._index, pool.name, demand, node=node)
            available = free_units_without({reservation.id}, entries, self._index)
            summary = summary.without_reservation(available)
        return refusal_of(summary, state.request_of(demand))

    def with_peer_tests(
        self, pool: "PoolFacts", constraints: "Constraints", *, uid: "PodUid"
    ) -> "Constraints":
        """Return a pod's constraints with the tests by other pods, among which its own reservation is not."""
        own = self.ledger.of_pod(uid)
        place = (own.node, own.peer) if own is not None and own.node and own.peer else None
        return with_peer_tests(self._index, pool.name, constraints, own=place)

    def leaves_node(self, reservation: Reservation) -> bool:
        """Say whether kube-scheduler chooses the node of a pod with a reservation."""
        pool = self._index.pool(reservation.pool)
        return pool is not None and pool.reserve is Reserve.UNITS

    def bound_to(self, uid: "PodUid") -> AlreadyBound | None:
        """Return the node that a pod is bound to, or that its Binding names; None while it may go anywhere."""
        facts = self.pods.get(uid)
        if facts is not None and facts.phase is not PodPhase.PENDING and facts.node is not None:
            return AlreadyBound(facts.node, None)
        reservation = self.ledger.of_pod(uid)
        if reservation is None or reservation.phase.is_uncommitted:
            return None
        if reservation.node is None:
            raise InvariantViolatedError(f"reservation {reservation.id} is committed to no node")
        return AlreadyBound(reservation.node, reservation)

    def fits_without(
        self,
        victims: "Collection[PodUid]",
        node: "NodeName",
        requested: "tuple[PoolFacts, Demand]",
        *,
        uid: "PodUid | None" = None,
    ) -> bool:
        """Say whether the pod would fit the node if these bound pods were gone.

        The pod's own reservation counts as free, and so does that of a victim whose binding the watch has not delivered.
        """
        pool, demand = requested
        current = self._index.pool(pool.name)
        if current is not None and current.closed is not None:
            return False
        gone: set[PodUid | ReservationId] = set(victims)
        for pod in (*victims, uid):
            reservation = self.ledger.of_pod(pod) if pod is not None else None
            if reservation is not None:
                gone.add(reservation.id)
        free = free_units_without(
            gone, devices_for(self._index, pool.name, demand, node=node), self._index
        )
        unaccounted = self._index.unaccounted.at(pool.resource, node)
        return not (unaccounted.keys() - gone) and self._can_serve(free, pool, demand, node=node)

    def _can_serve(
        self, free: "Counts", pool: "PoolFacts", demand: "Demand", *, node: "NodeName"
    ) -> bool:
        """Say whether these units of a node's devices serve the demand."""
        if sum(free) < demand.units:
            return False
        state = self._index.state_for(pool.name, demand)
        summary = state.node(node)
        unit_counts = summary.unit_counts if summary is not None else None
        return unit_counts is None or fits(unit_counts.devices, free, state.request_of(demand))

    def has_constraints(self, pool: "PoolFacts", node: "NodeName", demand: "Demand") -> bool:
        """Say whether more than the number of free units decides there whether a pod fits."""
        is_constrained = self._index.device_rules(pool.name, node).is_constrained
        return is_constrained or is_limited(self._index, pool.name, demand, node=node)

    def holder(self, uid: "PodUid") -> "PodFacts | None":
        """Return a pod that may have units: an observed one, or a deleted one that its node still reports."""
        return self.pods.get(uid) or self.pod_claims.deleted.get(uid)

    def pods_on(self, device: "DeviceName") -> "list[PodFacts]":
        """Return the pods that have units of a device, bound or by a reservation for a known uid."""
        entry = self._index.devices.get(device)
        return [] if entry is None else self._pods_with(entry)

    def _pods_with(self, entry: "DeviceEntry") -> "list[PodFacts]":
        # Holders are bound pods and reservations, and a reservation's id is no pod's uid.
        pods = (self.pods.get(PodUid(holder)) for holder in self._index.claims.holders(entry))
        return [pod for pod in pods if pod is not None]

    def pods_of_pool(self, pool: "PoolFacts", node: "NodeName") -> "list[PodFacts]":
        """Return the pods with units of the pool on a node: lowest priority first, then largest."""
        found: dict[PodUid, PodFacts] = {}
        for entry in self._index.devices_on(pool.name, node):
            found |= {pod.uid: pod for pod in self._pods_with(entry)}
        for uid in self._index.unaccounted.at(pool.resource, node):
            pod = self.pods.get(uid)
            if pod is not None:
                found[uid] = pod
        return sorted(found.values(), key=lambda pod: (pod.priority, -pod.demand.units, pod.ref))

    def unaccounted_units(self, pod: "PodFacts") -> "Iterator[tuple[str, int]]":
        """Yield, by resource, the units of a bound pod whose devices are unknown."""
        if pod.node is None:
            return
        for resource in [resource for resource, _ in pod.inadmissible_units] or [
            pod.demand.resource
        ]:
            units = self._index.unaccounted.at(resource, pod.node).get(pod.uid)
            if units:
                yield resource, units

    def unitless_pods(self) -> "list[PodUid]":
        """Return the pods without units that take CPU or memory."""
        return [uid for uid in self._index.requests.pods() if self.pods.get(uid) is None]

    def unitless_pod(self, uid: PodUid) -> UnitlessPod | None:
        """Return a pod without units that takes CPU or memory."""
        found = self._index.requests.of(uid) if self.pods.get(uid) is None else None
        return None if found is None else UnitlessPod(uid, *found)

    def unreported(self, pool: "PoolFacts", node: "NodeName") -> "dict[PodUid, str]":
        """Return the pods of a node whose units of the pool it does not report yet: uid -> namespace/name.

        They are bound, or their Binding was sent. Where kubelet chooses the NUMA nodes, they may get other units.
        """
        holders = {
            holder
            for entry in self._index.devices_on(pool.name, node)
            for holder in self._index.claims.holders(entry)
        }
        found: dict[PodUid, str] = {}
        for holder in sorted(holders):
            facts = self.pods.get(PodUid(holder))
            sent = self.ledger.get(ReservationId(holder))
            if facts is not None and not is_complete(
                facts, self.pod_claims.reports.of(node, facts.uid)
            ):
                found[facts.uid] = facts.ref
            if sent is not None and sent.uid is not None and not sent.phase.is_uncommitted:
                found[sent.uid] = sent.pod
        return found

    def shared_units(self) -> "dict[UnitId, frozenset[PodUid]]":
        """Return the units that several bound pods have, with these pods; empty unless something went wrong.

        Where a node reports the owner of a unit, another pod's assignment of it does not count: kubelet allocates a
        unit once, so the other pod gets another unit, which its own report is about to show.
        """
        found: dict[UnitId, frozenset[PodUid]] = {}
        for unit, owners in self._index.claims.duplicates().items():
            pods = [facts for uid in owners if (facts := self.holder(uid)) is not None]
            reported = frozenset(facts.uid for facts in pods if self.pod_claims.is_reported(facts))
            if not reported or len(reported) > 1:
                found[unit] = reported or owners
        return found

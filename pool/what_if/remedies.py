"""Changes after which a waiting pod is placed. Each is tried on a copy of its node before it is returned.

Searches are bounded, so that one in a pool of thousands of nodes takes milliseconds: where a bound is reached, a remedy
may exist that is not named. None is named that does not help.
"""

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpupool import SlicePlacement
from api.names import NodeName, PodUid, ReservationId, owner_of
from pool.compute_resources import ComputeResources
from pool.index.node_view import refusal_of
from pool.model import PodSelection
from pool.peer_fit import with_peer_tests
from pool.placement.same_device import is_valid_size
from pool.pods.selection import constraints_of_selection
from pool.what_if.device_remedies import DeviceRemedies
from pool.what_if.evictions import cheapest_eviction
from pool.what_if.exclusion import CORDONED, NOT_READY, once_ready, once_uncordoned
from pool.what_if.explanation import (
    AskFewerUnits,
    DevicesJoin,
    PodsEnd,
    ReservationsExpire,
    UnitsReturn,
    UsePool,
    WithheldBy,
)
from pool.what_if.node_copy import NodeChange, NodeCopy
from pool.what_if.node_figures import (
    figures_of_nodes,
    holder_of_pod,
    holder_of_reservation,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pool.allocation_reader import AllocationReader
    from pool.index.reader import IndexReader
    from pool.model import Constraints, Demand, PoolFacts
    from pool.reservations.reservation import Reservation
    from pool.what_if.evictions import NodeEviction
    from pool.what_if.explanation import AnyRemedy, NodeExplanation
    from pool.what_if.question import WaitQuestion

_MOST_COPIES: Final = 256
"""Copies of nodes for one kind of remedy: some 20 ms."""
_MOST_SIZE_CHECKS: Final = 4096
"""Pairs of a smaller size and a node."""
_MOST_NODES: Final = 512
"""On which pods could end, those with most free units: some 20 ms."""


@final
@dataclass(slots=True, kw_only=True)
class RemedySearch:
    """The search for one pod."""

    reader: "AllocationReader"
    index: "IndexReader"
    question: "WaitQuestion"
    pool: "PoolFacts"
    constraints: "Constraints"
    figures: "Sequence[NodeExplanation]"
    _copies_left: int = field(default=_MOST_COPIES)

    @property
    def _demand(self) -> "Demand":
        return self.question.pod.demand

    @property
    def _own(self) -> "Reservation | None":
        return self.reader.ledger.of_pod(self.question.pod.uid)

    def searches(self) -> "Iterator[AnyRemedy | None]":
        """Yield what each kind of search finds within the pod's own pool, the least change first; None for nothing.

        Between two of them the state may change: each tries what it names on the state of its moment.
        """
        searches = (
            self._fewer_units,
            self._expiring_reservations,
            self._schedulable_node,
            self._restored_devices,
            self._joining_devices,
            self._ending_pods,
        )
        for search in searches:
            self._copies_left = _MOST_COPIES
            yield search()

    def _takes(
        self,
        node: "NodeName",
        change: NodeChange,
        *,
        demand: "Demand | None" = None,
    ) -> bool:
        if self._copies_left <= 0:
            return False
        self._copies_left -= 1
        own = self._own
        if own is not None:
            change = replace(change, ended=change.ended | {own.id})
        if own is not None and own.node == node:  # a node that is starting is open to its pod
            facts = change.node or self.index.nodes.get(node)
            opened = None if facts is None else replace(facts, is_starting=False)
            change = replace(change, node=opened)
        change = replace(change, freed=self._freed_by(change.ended))
        copy = NodeCopy(
            index=self.index,
            pool=self.pool,
            pod=self.question.pod,
            demand=demand or self._demand,
            constraints=self.constraints,
        )
        return copy.takes(node, change)

    def _fewer_units(self) -> AskFewerUnits | None:
        """Return the largest smaller size that a node takes now; None for a pod of several containers with units."""
        if len(self._demand.containers) != 1:
            return None
        pool, uid = self.pool, self.question.pod.uid
        own = self._own
        at_hand = {
            NodeName(figure.node): figure.free
            + (len(own.units) if own is not None and own.node == figure.node else 0)
            for figure in self.figures
            if not figure.exclusion
        }
        checks = 0
        for units in self._sizes_below(max(at_hand.values(), default=0)):
            demand = with_units(self._demand, units)
            for node, most in at_hand.items():
                if most < units:
                    continue
                checks += 1
                if checks > _MOST_SIZE_CHECKS:
                    return None
                if self.reader.refusal_on(node, pool, demand, uid=uid) is not None:
                    continue
                if self._takes(node, NodeChange(), demand=demand):
                    return AskFewerUnits(node=node, units=units)
        return None

    def _sizes_below(self, most: int) -> "Iterable[int]":
        sizes = range(min(self._demand.units - 1, most), 0, -1)
        if self.pool.slice_placement is not SlicePlacement.SAME_DEVICE:
            return sizes
        return (size for size in sizes if is_valid_size(size, self.pool.slices_per_device))

    def _expiring_reservations(self) -> ReservationsExpire | None:
        """Return the reservations of one node after whose expiry, which comes first of all, the pod is placed."""
        best: tuple[float, int, NodeName, list[Reservation]] | None = None
        for node, reservations in sorted(self._reservations().items()):
            if not self._devices.could_do(
                node, sum(len(reservation.units) for reservation in reservations)
            ):
                continue
            last = self._last_needed(node, reservations)
            if last is None:
                continue
            needed = self._without_needless(node, reservations[: last + 1])
            found = (needed[-1].expires_at, len(needed), node, needed)
            best = found if best is None or found[:3] < best[:3] else best
        if best is None:
            return None
        _, _, node, needed = best
        holders = tuple(
            holder_of_reservation(item, self.reader, units=len(item.units), now=self.question.now)
            for item in needed
        )
        within_s = max(0.0, needed[-1].expires_at - self.question.now)
        return ReservationsExpire(node=node, holders=holders, within_s=within_s)

    def _reservations(self) -> "dict[NodeName, list[Reservation]]":
        """Return the reservations that expire by nodes that they could open to the pod, the first to expire first."""
        short = {
            item.node
            for item in self.figures
            if item.reserved and not item.exclusion and not item.takes_pod
        }
        found: dict[NodeName, list[Reservation]] = {}
        for reservation in self.reader.ledger.all():
            expires = reservation.phase.is_uncommitted and reservation.phase.is_confirmed
            is_other = (
                reservation.pool == self.pool.name and reservation.uid != self.question.pod.uid
            )
            if reservation.node in short and expires and is_other:
                found.setdefault(reservation.node, []).append(reservation)
        for entry in found.values():
            entry.sort(key=lambda item: (item.expires_at, item.id))
        return found

    def _last_needed(self, node: "NodeName", reservations: "Sequence[Reservation]") -> int | None:
        """Return the least position up to which the reservations have to expire; None where all do not suffice."""
        low, high = 0, len(reservations) - 1
        if not self._takes_without(node, reservations):
            return None
        while low < high:  # what is taken after fewer have expired is taken after more
            middle = (low + high) // 2
            if self._takes_without(node, reservations[: middle + 1]):
                high = middle
            else:
                low = middle + 1
        return low

    def _without_needless(
        self, node: "NodeName", reservations: "Sequence[Reservation]"
    ) -> "list[Reservation]":
        needed = list(reservations)
        for reservation in reservations[:-1]:
            remaining = [other for other in needed if other is not reservation]
            if self._takes_without(node, remaining):
                needed = remaining
        return needed

    def _takes_without(self, node: "NodeName", reservations: "Iterable[Reservation]") -> bool:
        return self._takes(
            node, NodeChange(ended=frozenset(reservation.id for reservation in reservations))
        )

    def _schedulable_node(self) -> UnitsReturn | None:
        """Return a node that takes the pod once it is ready, or no longer cordoned; not one that is both."""
        for figure in self.figures:
            if figure.exclusion not in {CORDONED, NOT_READY} or figure.refusal is not None:
                continue
            node = self.index.nodes.get(NodeName(figure.node))
            if node is None:
                continue
            is_cordoned = figure.exclusion == CORDONED
            changed = once_uncordoned(node) if is_cordoned else once_ready(node)
            if self._takes(node.name, NodeChange(node=changed)):
                cause = WithheldBy.CORDONED if is_cordoned else WithheldBy.NOT_READY
                return UnitsReturn(node=figure.node, cause=cause, units=figure.withheld)
        return None

    def _restored_devices(self) -> UnitsReturn | None:
        return self._devices.restored(self.figures)

    def _joining_devices(self) -> DevicesJoin | None:
        return self._devices.joining(self.question.joinable, self.constraints)

    @property
    def _devices(self) -> DeviceRemedies:
        return DeviceRemedies(
            reader=self.reader,
            index=self.index,
            pool=self.pool,
            demand=self._demand,
            own=self._own,
            takes=self._takes,
        )

    def _ending_pods(self) -> PodsEnd | None:
        """Return the fewest pods of one node whose end frees capacity, CPU and memory included."""
        nodes = (NodeName(figure.node) for figure in self.figures if _may_change(figure))
        found = cheapest_eviction(
            self.reader,
            self.index,
            (self.pool, self._demand),
            nodes=itertools.islice(nodes, _MOST_NODES),
            has_capacity=self._has_capacity,
            uid=self.question.pod.uid,
        )
        if found is None:
            return None
        ended = frozenset(pod.uid for pod in found.pods)
        if not self._takes(found.node, NodeChange(ended=ended)):
            return None
        holders = tuple(holder_of_pod(pod, units=pod.demand.units) for pod in found.pods)
        return PodsEnd(node=found.node, holders=holders, is_preemption=self._is_preemption(found))

    def _is_preemption(self, found: "NodeEviction") -> bool:
        """Say whether kube-scheduler evicts the pods by itself: it evicts nobody where the number of units suffices."""
        node = self.index.state(self.pool.name).node(found.node)
        is_short = node is None or node.total - node.unusable - node.used < self._demand.units
        return is_short and all(pod.priority < self.question.pod.priority for pod in found.pods)

    def _has_capacity(self, node: "NodeName", without: "Collection[PodUid]") -> bool:
        freed = self._freed_by(without)
        return self.index.has_capacity(self.question.pod, node, freed=freed)

    def _freed_by(self, ended: "Iterable[PodUid | ReservationId]") -> ComputeResources:
        """Return the CPU, memory and places of other pods that these are, or that these reservations are for."""
        cpu = memory = pods = 0
        for item in ended:
            reservation = self.reader.ledger.get(ReservationId(item))
            uid = PodUid(item) if reservation is None else reservation.uid
            pod = self.reader.pods.get(uid) if uid is not None else None
            if pod is not None and pod.uid != self.question.pod.uid:
                cpu += pod.requests.cpu_milli
                memory += pod.requests.memory_mib
                pods += pod.requests.pods
        return ComputeResources(cpu, memory, pods)


def remedies_in(
    reader: "AllocationReader",
    index: "IndexReader",
    question: "WaitQuestion",
    *,
    pool: "PoolFacts",
    constraints: "Constraints",
    figures: "Sequence[NodeExplanation] | None" = None,
) -> "Iterator[AnyRemedy | None]":
    """Yield what each kind of search finds for a pod that this pool serves, the least change first; None for nothing.

    Between two of them the state may change: each tries what it names on the state of its moment.
    """
    if figures is None:
        figures = figures_of_nodes(index, pool, question.pod, constraints=constraints)
    search = RemedySearch(
        reader=reader,
        index=index,
        question=question,
        pool=pool,
        constraints=constraints,
        figures=figures,
    )
    searches = search.searches() if pool.closed is None else iter(())
    yield from itertools.islice(searches, 2)
    yield from other_pools(index, question)
    yield from searches


def other_pools(index: "IndexReader", question: "WaitQuestion") -> "Iterator[UsePool]":
    """Yield the further pools that take the pod now for as many units, by name."""
    demand = question.pod.demand
    for pool in sorted(question.other_pools, key=lambda item: item.name):
        if pool.resource == demand.resource or pool.closed is not None:
            continue
        serving = index.pool_of(pool.resource)
        if serving is None or serving.name != pool.name:  # an older pool has the same resource
            continue
        if len(demand.containers) != 1 or not _is_askable(demand.units, pool):
            continue
        asked = msgspec.structs.replace(demand, resource=pool.resource)
        state = index.state_for(pool.name, asked)
        request = state.request_of(asked)
        copy = NodeCopy(
            index=index,
            pool=pool,
            pod=question.pod,
            demand=asked,
            constraints=with_peer_tests(index, pool.name, _constraints_in(pool, question)),
        )
        for name, summary in sorted(state.nodes().items()):
            if refusal_of(summary, request) is None and copy.takes(name):
                yield UsePool(node=name, pool=pool.name, resource=pool.resource)
                break


def _constraints_in(pool: "PoolFacts", question: "WaitQuestion") -> "Constraints":
    """Return the constraints that the pod would have if it asked this pool."""
    selection = question.pod.selection or PodSelection()
    more = tuple(question.tolerated.get(owner_of(pool.name), ()))
    return constraints_of_selection(
        msgspec.structs.replace(selection, tolerations=(*selection.tolerations, *more)),
        question.pod.peer,
    )


def _is_askable(units: int, pool: "PoolFacts") -> bool:
    if pool.slice_placement is not SlicePlacement.SAME_DEVICE:
        return True
    return is_valid_size(units, pool.slices_per_device)


def _may_change(node: "NodeExplanation") -> bool:
    """Say whether pods that end can open a node to the pod, by units, CPU, memory or places."""
    return not node.exclusion and (node.refusal is None or node.refusal.reason.is_resolvable)


def with_units(demand: "Demand", units: int) -> "Demand":
    """Return the demand of a pod with one container, for another number of units."""
    (container,) = demand.containers
    changed = msgspec.structs.replace(container, units=units)
    return msgspec.structs.replace(demand, containers=(changed,), units=units)

"""Devices of one node that would free capacity for a waiting pod: those that are withheld, and those in no pool.

Which devices are few enough to be named is found by trying: the first ones that suffice, without those among them that
are not needed. The rules of some nodes (kubelet's policy) can make more devices worse than fewer, so that small sets
are tried, too.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar, final

from api.names import NodeName
from pool.layout import layout_of, partitioned_again
from pool.what_if.evictions import is_closed
from pool.what_if.exclusion import exclusion_of
from pool.what_if.explanation import DevicesJoin, UnitsReturn, WithheldBy
from pool.what_if.node_copy import NodeChange
from pool.what_if.node_figures import holder_of_pod, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from api.names import PodUid
    from pool.allocation_reader import AllocationReader
    from pool.index.devices import DeviceEntry
    from pool.index.reader import IndexReader
    from pool.model import Constraints, Demand, PoolFacts
    from pool.reservations.reservation import Reservation
    from pool.what_if.explanation import NodeExplanation
    from pool.what_if.question import JoinableDevice

    Takes = Callable[["NodeName", NodeChange], bool]
    """Says whether a node takes the pod after a change."""

_Candidate = TypeVar("_Candidate")

_MOST_SMALL_SETS: Final = 32
"""Most small sets of the devices of one node, beside the first ones."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRemedies:
    """The search for the devices of one pod."""

    reader: "AllocationReader"
    index: "IndexReader"
    pool: "PoolFacts"
    demand: "Demand"
    own: "Reservation | None"
    """The pod's, whose units count as free."""
    takes: "Takes"

    def restored(self, figures: "Sequence[NodeExplanation]") -> UnitsReturn | None:
        """Return few devices of a node, withheld for one cause, whose units would do."""
        best: UnitsReturn | None = None
        nodes = self.index.state_for(self.pool.name, self.demand).nodes()
        differing = self.index.state(self.pool.name).differing
        partitioned = {self.index.devices[name].facts.node for name in differing}
        for item, _ in refused(figures):
            summary = nodes.get(NodeName(item.node))
            if item.node not in partitioned and (summary is None or not summary.unusable):
                continue
            for cause in (WithheldBy.FAULTED, WithheldBy.DRAINING, WithheldBy.LAYOUT):
                found = self._restored_on(item.node, cause)
                if found is not None and (best is None or len(found.devices) < len(best.devices)):
                    best = found
        return best

    def joining(
        self, joinable: "Sequence[JoinableDevice]", constraints: "Constraints"
    ) -> DevicesJoin | None:
        """Return few devices in no pool whose units would do, once they are in the pod's pool."""
        by_node: dict[NodeName, list[JoinableDevice]] = {}
        for item in joinable:
            by_node.setdefault(item.device.node, []).append(item)
        best: DevicesJoin | None = None
        for node, candidates in sorted(by_node.items()):
            facts = self.index.nodes.get(node)
            if facts is None or exclusion_of(facts, constraints):
                continue
            found = self._joining_on(node, candidates)
            if found is not None and (best is None or len(found) < len(best.devices)):
                names = tuple(item.device.name for item in found)
                best = DevicesJoin(node=node, devices=names, obstacle=found[0].obstacle)
        return best

    def _restored_on(self, node: str, cause: WithheldBy) -> UnitsReturn | None:
        name = NodeName(node)
        devices = self._withheld(name, cause)
        if not self.could_do(name, sum(map(self._returned, devices))):
            return None
        found = _minimal_subset(
            devices,
            lambda entries: self.takes(
                name,
                NodeChange(
                    restored=frozenset(entry.facts.name for entry in entries),
                    ended=frozenset(self._users(entries)),
                ),
            ),
        )
        if found is None:
            return None
        units = sum(map(self._returned, found))
        names = tuple(entry.facts.name for entry in found)
        actions = {entry.facts.needed_action for entry in found} - {""}
        return UnitsReturn(
            node=node,
            cause=cause,
            units=units,
            devices=names,
            needed_actions=tuple(sorted(actions)),
            holders=tuple(
                holder_of_pod(pod, units=count)
                for uid, count in sorted(self._users(found).items())
                if (pod := self.reader.holder(uid)) is not None
            ),
        )

    def _withheld(self, node: "NodeName", cause: WithheldBy) -> "list[DeviceEntry]":
        """Return the devices that are withheld for this cause alone, most units that would be free first."""
        found = [
            entry
            for entry in self.index.devices_on(self.pool.name, node)
            if not entry.is_usable
            and not entry.is_duplicate
            and self._returned(entry)
            and entry.facts.is_faulted is (cause is WithheldBy.FAULTED)
            and entry.is_draining is (cause is WithheldBy.DRAINING)
            and entry.layout.differs is (cause is WithheldBy.LAYOUT)
        ]
        return sorted(found, key=lambda item: (-self._returned(item), item.facts.name))

    def _returned(self, entry: "DeviceEntry") -> int:
        """Count the units that the device would have for the pod."""
        if not entry.layout.differs:
            return self._idle(entry)
        if entry.assumed:  # the pod of a reservation may start there at any moment
            return 0
        return layout_of(partitioned_again(entry.facts, self.pool), self.pool).count

    def _users(self, entries: "Sequence[DeviceEntry]") -> "Counter[PodUid]":
        """Count the units of the bound pods that end before the devices are partitioned again."""
        found: Counter[PodUid] = Counter()
        for entry in entries:
            if entry.layout.differs:
                for uid, units in self.index.claims.occupants(entry).items():
                    found[uid] += len(units)
        return found

    def _joining_on(
        self, node: "NodeName", candidates: "Sequence[JoinableDevice]"
    ) -> "list[JoinableDevice] | None":
        units = sum(
            layout_of(replace(candidate.device, pool=self.pool.name), self.pool).count
            for candidate in candidates
        )
        if not self.could_do(node, units):
            return None
        return _minimal_subset(
            candidates,
            lambda candidate: self.takes(
                node, NodeChange(joined=tuple(item.device for item in candidate))
            ),
        )

    def could_do(self, node: "NodeName", units: int) -> bool:
        """Say whether so many more units suffice by their number, on a node that allocates any to the pod."""
        summary = self.index.state_for(self.pool.name, self.demand).node(node)
        is_own = self.own is not None and self.own.node == node
        if not units:
            return False
        if summary is not None:
            if summary.unaccounted or is_closed(summary, is_own=is_own):
                return False
            units += summary.free + summary.unconfirmed
        if self.own is not None and is_own:
            units += len(self.own.units)
        return units >= self.demand.units

    def _idle(self, entry: "DeviceEntry") -> int:
        """Count the units that the pod could have if the device were not withheld."""
        taken = entry.observed | entry.confirmed
        if self.own is not None:
            others = self.index.claims.confirmed_without(entry, {self.own.id})
            taken = entry.observed | others
        return (entry.layout.full & ~taken).bit_count()


def _minimal_subset(
    candidates: "Sequence[_Candidate]", suffice: "Callable[[Sequence[_Candidate]], bool]"
) -> "list[_Candidate] | None":
    """Return candidates that suffice, none of which can be left out; None where none are found."""
    for entry in itertools.chain(_first_ones(candidates), _small_sets(candidates)):
        if not suffice(entry):
            continue
        needed = list(entry)
        for item in entry:
            remaining = [other for other in needed if other is not item]
            if remaining and suffice(remaining):
                needed = remaining
        return needed
    return None


def _first_ones(candidates: "Sequence[_Candidate]") -> "Iterator[Sequence[_Candidate]]":
    return (candidates[:count] for count in range(1, len(candidates) + 1))


def _small_sets(candidates: "Sequence[_Candidate]") -> "Iterator[Sequence[_Candidate]]":
    sets = itertools.chain.from_iterable(
        itertools.combinations(candidates, size) for size in range(1, len(candidates))
    )
    return itertools.islice(sets, _MOST_SMALL_SETS)

"""Figures of a pool's nodes, and the refusals and scores that filter and prioritize read.

A `PoolNode` is recomputed when the node changes. A `FitView` has, for one request, the refusal or the score of every
node of the pool, and recomputes only nodes that changed. So filter costs the candidates of its call, not the pods
or the cluster.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from api.kinds.gpupool import Strategy
from pool.placement.device_choice import fits, is_split
from pool.placement.unit_counts import UnitCounts, fault_of
from pool.refusal import NodeReason, NodeRefusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.names import NodeName
    from pool.index.devices import DeviceEntry
    from pool.placement.device_rules import Counts, DeviceRules
    from pool.placement.fragmentation.placement_costs import RemainingCapacity
    from pool.placement.unit_counts import UnitShortage
    from pool.placement.unit_request import UnitRequest
    from pool.refusal import CacheIncompatibility

MAX_SCORE: Final = 9
"""Best score by strategy; 10 is left for the node of the pod's own reservation."""


class PoolNode(msgspec.Struct, frozen=True, gc=False):
    """Units of one pool on one node; total = used + reserved + unconfirmed + free + unhealthy.

    Created at every reservation and bind; a msgspec struct takes a tenth of a dataclass's time.
    """

    total: int
    used: int
    reserved: int
    """Units of reservations whose pods exist."""
    free: int
    """Units without a claim."""
    unhealthy: int
    """Unclaimed units on faulted devices."""
    partial: int
    """Free units on partly taken devices: a slice can use them without opening a device."""
    unaccounted: int = 0
    """Units of pods there whose devices are unknown."""
    unconfirmed: int = 0
    """Units of reservations whose pods are not observed yet: free to any pod that exists."""
    is_placeable: bool = True
    """Whether units may be reserved here: the node is known, ready and not cordoned."""
    unusable: int = 0
    """Units on faulted devices, taken or not: no eviction makes them available."""
    closed: NodeReason | None = None
    """Why the whole pool, or a node that starts, leaves or gets a new driver, allocates no units."""
    unit_counts: "UnitCounts | None" = None
    """Units by device, where more than their number decides."""
    remaining: "RemainingCapacity | None" = None
    """What decides the value of the node, with strategy LeastFragmentation (`pool.index.node_ranking`)."""
    incompatibility: "CacheIncompatibility | None" = None
    """Why further devices of the node have no units for the pods in question (`pool.index.cache_fit`)."""

    def without_reservation(self, available: "Counts") -> "PoolNode":
        """Return the node as the owner of a confirmed reservation sees it, which may get these units of each device.

        A node that is starting is open to it: it was added for that pod.
        """
        units = sum(available) - self.free - self.unconfirmed
        closed = None if self.closed is NodeReason.NODE_STARTING else self.closed
        unit_counts = self.unit_counts
        if unit_counts is not None:
            unit_counts = msgspec.structs.replace(unit_counts, available=available)
        return msgspec.structs.replace(
            self,
            reserved=self.reserved - units,
            free=self.free + units,
            unit_counts=unit_counts,
            closed=closed,
        )

    @property
    def bucket(self) -> "Bucket":
        return (self.free, self.total, self.partial)

    @property
    def is_open(self) -> bool:
        """Whether units may be allocated here."""
        return not self.unaccounted and self.closed is None

    @property
    def is_reservable(self) -> bool:
        """Whether units may be reserved here."""
        return self.is_placeable and self.is_open

    @property
    def takes_pods(self) -> bool:
        """Whether pods can get units here, now or after others have ended."""
        return self.is_placeable and self.is_open and self.total > self.unusable

    @property
    def available(self) -> int:
        """Units that a pod that exists may get now."""
        return self.free + self.unconfirmed if self.is_open else 0


def without_incompatible(
    node: PoolNode | None, incompatibility: "CacheIncompatibility"
) -> PoolNode:
    """Return the figures of a node of which further devices are none for the pods in question; None has no others."""
    if node is None:
        return PoolNode(0, 0, 0, 0, 0, 0, is_placeable=False, incompatibility=incompatibility)
    return msgspec.structs.replace(node, incompatibility=incompatibility)


def summarize(
    entries: "Sequence[DeviceEntry]",
    *,
    unaccounted: int,
    is_placeable: bool,
    closed: NodeReason | None = None,
    devices: "DeviceRules | None" = None,
    remaining: "RemainingCapacity | None" = None,
) -> PoolNode | None:
    """Return a node's figures; None when its devices have no units.

    Args:
        entries: the pool's devices on the node.
        unaccounted: units of the pool's pods there whose devices are unknown.
        is_placeable: whether units may be reserved on the node.
        closed: why the whole pool, or the node, allocates no units, where that is so.
        devices: the rules for sets of these devices, where there are some.
        remaining: what decides the value of the node, with strategy LeastFragmentation.
    """
    total = used = reserved = unconfirmed = free = unhealthy = partial = unusable = 0
    for entry in entries:
        observed, assumed = entry.observed, entry.assumed
        count = idle = entry.layout.count
        total += count
        if not (observed or assumed) and entry.is_usable:
            free += count
            continue
        firm = observed | entry.confirmed
        if firm:
            used += observed.bit_count()
            reserved += (firm & ~observed).bit_count()
            idle = (entry.layout.full & ~firm).bit_count()
        if not entry.is_usable:
            unhealthy += idle
            unusable += count
            continue
        loose = assumed & ~firm
        if loose:
            unconfirmed += loose.bit_count()
            idle -= loose.bit_count()
        free += idle
        if firm or loose:
            partial += idle
    if not total:
        return None
    return PoolNode(
        total=total,
        used=used,
        reserved=reserved,
        free=free,
        unhealthy=unhealthy,
        partial=partial,
        unaccounted=unaccounted,
        unconfirmed=unconfirmed,
        is_placeable=is_placeable,
        unusable=unusable,
        closed=closed,
        unit_counts=_unit_counts(entries, devices) if devices is not None else None,
        remaining=remaining,
    )


def _unit_counts(entries: "Sequence[DeviceEntry]", devices: "DeviceRules") -> UnitCounts:
    usable = [entry.layout.full if entry.is_usable else 0 for entry in entries]
    return UnitCounts(
        devices,
        free=tuple(
            (full & ~item.taken).bit_count() for full, item in zip(usable, entries, strict=True)
        ),
        available=tuple(
            (full & ~(item.observed | item.confirmed)).bit_count()
            for full, item in zip(usable, entries, strict=True)
        ),
        healthy=tuple(full.bit_count() for full in usable),
    )


def refusal_of(node: PoolNode, request: "UnitRequest") -> NodeRefusal | None:
    """Return why the node cannot serve the request, or None when it can."""
    size = request.units
    fault: UnitShortage | None = None
    if node.available >= size:
        fault = fault_of(node.unit_counts, request) if node.unit_counts is not None else None
        if fault is None:
            return None
    unhealthy = node.unhealthy
    if fault is not None:
        reason = fault.reason
    elif node.incompatibility is not None and not node.total:
        reason = NodeReason.CACHE_FITS_NO_DEVICE
    elif node.closed is not None:
        reason = node.closed
    elif node.total - node.unusable < size:
        reason, unhealthy = NodeReason.NODE_TOO_SMALL, node.unusable
        if node.incompatibility is not None:
            reason = NodeReason.CACHE_FITS_TOO_FEW
    elif node.unaccounted:
        reason = NodeReason.UNACCOUNTED_PODS
    elif node.incompatibility is not None:
        reason = NodeReason.INSUFFICIENT_FITTING_UNITS
    else:
        reason = NodeReason.INSUFFICIENT_UNITS
    return NodeRefusal(
        reason=reason,
        requested=size,
        free=node.free + node.unconfirmed,
        reserved=node.reserved,
        used=node.used + node.unaccounted,
        unhealthy=unhealthy,
        total=node.total,
        largest=fault.largest if fault is not None else 0,
        policy=fault.policy if fault is not None else "",
        incompatibility=node.incompatibility,
    )


def score_of(node: PoolNode, request: "UnitRequest", strategy: Strategy) -> int:
    """Return 0..9, higher is better, for a node that fits; 0 where it would take a unit of a reservation."""
    left = node.free - request.units
    if left < 0 or not (
        node.unit_counts is None or fits(node.unit_counts.devices, node.unit_counts.free, request)
    ):
        return 0
    score = _score_by_strategy(node, left, strategy)
    if (
        node.unit_counts is None
        or request.units == 1
        or not node.unit_counts.devices.prefers_aligned
    ):
        return score
    # A node with an aligned set goes before one without, whatever the strategy says.
    score = score * (MAX_SCORE // 2) // MAX_SCORE
    return (
        score
        if is_split(node.unit_counts.devices, node.unit_counts.free, request)
        else score + _ALIGNED
    )


_ALIGNED: Final = MAX_SCORE - MAX_SCORE // 2


def _score_by_strategy(node: PoolNode, left: int, strategy: Strategy) -> int:
    match strategy:
        case Strategy.BIN_PACK:
            return MAX_SCORE * (node.total - left) // node.total
        case Strategy.SPREAD:
            return MAX_SCORE * left // node.total
        case Strategy.LEAST_FRAGMENTATION:  # pragma: no branch  # mypy proves that none is missing
            return max(0, MAX_SCORE - left)


Bucket = tuple[int, int, int]
"""(free, total, partial): nodes that are alike for placement."""

Preference = tuple[float, ...]


def _fullest(bucket: Bucket, size: int) -> Preference:
    left = bucket[0] - size
    return (left / bucket[1], left)


def _emptiest(bucket: Bucket, size: int) -> Preference:
    left = bucket[0] - size
    return (-left / bucket[1], -left)


def _least_left(bucket: Bucket, size: int) -> Preference:
    return (bucket[0] - size, max(0, size - bucket[2]))


PREFERENCES: "Final[dict[Strategy, Callable[[Bucket, int], Preference]]]" = {
    Strategy.BIN_PACK: _fullest,
    Strategy.SPREAD: _emptiest,
    Strategy.LEAST_FRAGMENTATION: _least_left,
}
"""Sort keys of nodes that fit, lower is better, finer than the score: a preferred node never scores lower."""

_MAX_PREFERENCES: Final = 1024


@final
class Preferences(dict[Bucket, Preference]):
    """Sort keys of buckets for a number of units, each computed once: a reservation ranks every bucket of its pool."""

    def __init__(self, strategy: Strategy, size: int) -> None:
        super().__init__()
        self._prefer, self._size = PREFERENCES[strategy], size

    def __missing__(self, bucket: Bucket) -> Preference:
        if len(self) >= _MAX_PREFERENCES:
            self.clear()
        found = self[bucket] = self._prefer(bucket, self._size)
        return found


_FEW_REFUSALS: Final = 64
"""Refusals below which no sweep is worth it; beyond them, two for each node."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class FitView:
    """Refusals and scores of a pool's nodes for one request, to be read and not kept over an await.

    Anything derived from a view holds while it is the same object and its counter has not moved.
    """

    request: "UnitRequest"
    refusals_moved: int = 0
    """Counts changes of a refusal; a node that fits has none as long as it fits."""
    scores_moved: int = 0
    """Counts changes of a score."""
    refusals: "dict[NodeName, NodeRefusal | None]" = field(default_factory=dict)
    """Every node of the pool; None means that it fits."""
    scores: "dict[NodeName, int]" = field(default_factory=dict)
    """Nodes that fit."""
    _followers: "list[set[NodeName]]" = field(default_factory=list)
    _interned: dict[NodeRefusal, NodeRefusal] = field(default_factory=dict)

    def follow_scores(self) -> "set[NodeName]":
        """Return a set to which each node whose score changes is added, at first all that fit; its owner clears it.

        Each reader that derives data from scores has one; a process has one such reader.
        """
        follower = set(self.scores)
        self._followers.append(follower)
        return follower

    def _intern(self, refusal: NodeRefusal) -> NodeRefusal:
        """Return one object for equal refusals; refusals that no node has any more are dropped in time."""
        if len(self._interned) > _FEW_REFUSALS + 2 * len(self.refusals):
            needed = (item for item in self.refusals.values() if item is not None)
            self._interned = {item: item for item in needed}
        return self._interned.setdefault(refusal, refusal)

    def update(self, name: "NodeName", node: PoolNode | None, strategy: Strategy) -> None:
        """Apply the node's present state; None when it left the pool."""
        score: int | None = None
        refusal: NodeRefusal | Literal[False] | None = False  # says nothing: no node of the pool
        if node is not None:
            refusal = refusal_of(node, self.request)
            if refusal is None:
                score = score_of(node, self.request, strategy)
            else:
                refusal = self._intern(refusal)
        if refusal is not self.refusals.get(name, False):
            self.refusals_moved += 1
            if refusal is False:
                del self.refusals[name]
            else:
                self.refusals[name] = refusal
        if score != self.scores.get(name):
            self.scores_moved += 1
            for follower in self._followers:
                follower.add(name)
            if score is None:
                del self.scores[name]
            else:
                self.scores[name] = score

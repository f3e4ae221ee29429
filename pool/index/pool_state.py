"""One pool inside the index: its devices by node, the nodes' figures, and the views on them.

A change only marks its node; figures, views and buckets are updated by the next reader. A burst of changes to
one node is computed once.
"""

import heapq
import operator
from bisect import bisect_left, insort
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import SlicePlacement
from api.names import NodeName
from pool.index.node_ranking import NodeRanking
from pool.index.node_view import Bucket, FitView, PoolNode, Preferences
from pool.layout import layout_of, most_units_of_a_device
from pool.model import Capacity
from pool.placement.device_choice import fits, is_split
from pool.placement.device_rules import DeviceRules
from pool.placement.unit_counts import most_aligned
from pool.placement.unit_request import UnitRequest, request_by_containers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.kinds.gpupool import Strategy
    from api.names import DeviceName
    from pool.device_limit import DeviceLimit
    from pool.index.devices import DeviceEntry
    from pool.model import Demand, DeviceFacts, PoolFacts
    from pool.placement.fragmentation.placement_costs import PlacementCosts

_MAX_LIMITED: Final = 8
"""Sets of caches that do not fit all devices of a pool, and for which its nodes are kept a second time."""
_MAX_VIEWS: Final = 64
"""Requests kept at a time; one more distinct request drops the oldest view."""


@final
class PoolState:
    """Devices, nodes and views of one pool. `facts` is None until its object is observed."""

    def __init__(
        self,
        summarize: "Callable[[NodeName, list[DeviceName], DeviceLimit | None], PoolNode | None]",
        read_rules: "Callable[[NodeName], DeviceRules]",
        *,
        limit: "DeviceLimit | None" = None,
    ) -> None:
        self.facts: PoolFacts | None = None
        self.devices_by_node: dict[NodeName, list[DeviceName]] = {}
        # in the order of their names, in which units are allocated
        self.capabilities: Counter[str] = Counter()
        """Compute capability -> number of devices that the driver has reported."""
        self.differing: dict[DeviceName, int] = {}
        # device whose layout is not that of the pool's allocation -> units that it lacks
        self.layout_losses: Counter[DeviceName] = Counter()
        """How often each device has had its layout in this pool, and lost it; counted by standbys, too."""
        self._limit = limit
        self._limited: dict[DeviceLimit, PoolState] = {}
        # the same pool for pods that cannot use all of its devices
        self.parts: list[PoolState] = []
        """The same pool as pods of each of its MIG profiles see it; of a pool with several."""
        self._summarize = summarize
        self._read_rules = read_rules
        self._rules: dict[NodeName, DeviceRules] = {}
        # as read since the last change of the pool or of a device's object
        self._nodes: dict[NodeName, PoolNode] = {}
        self._dirty: set[NodeName] = set()
        self._with_policy: set[NodeName] = set()
        # nodes whose kubelet has a policy that decides
        self.ranking: NodeRanking | None = None
        """Order of the nodes by strategy LeastFragmentation; None for others, and while the demand is not valued yet."""
        self._views: dict[UnitRequest, FitView] = {}
        self._preferences: dict[int, Preferences] = {}
        # by number of units, with the strategy of the pool's facts
        self._names_by_bucket: dict[Bucket, list[NodeName]] = {}
        # bucket -> its placeable nodes in order; 5,000 pointers are moved in a microsecond, which is
        # less than any tree costs
        self._totals: tuple[int, ...] = _NOTHING
        self._sizes: Counter[int] = Counter()
        # units that a node has, taken or not -> how many nodes have as many
        self._nodes_by_available: Counter[int] = Counter()
        # units that a stored pod may get on a placeable node -> number of such nodes
        self.sizes_moved = 0
        """Counts changes of a node's number of units; read it after `nodes`, which updates it."""

    def set_facts(self, facts: "PoolFacts | None") -> None:
        """Set the pool's facts; every node is recomputed."""
        if facts is None or self.facts is None or facts.allocation != self.facts.allocation:
            self.layout_losses.clear()
        self.facts = facts
        self.ranking = None
        self._views.clear()
        self._preferences.clear()
        self._rules.clear()
        self._limited.clear()
        self._dirty.update(self.devices_by_node)

    def limited(self, limit: "DeviceLimit") -> "PoolState":
        """Return the pool for pods that can use only some devices: the others have no units; itself if all fit.

        To be read and not kept.
        """
        if all(map(limit.fits, self.capabilities)):
            return self
        found = self._limited.get(limit)
        if found is None:
            if len(self._limited) >= _MAX_LIMITED:
                del self._limited[next(iter(self._limited))]
            found = self._limited[limit] = PoolState(self._summarize, self._read_rules, limit=limit)
            found.devices_by_node = self.devices_by_node
            found.set_facts(self.facts)
            if self.ranking is not None:
                found.rank(self.ranking.costs)
        return found

    def rank(self, costs: "PlacementCosts") -> None:
        """Order the nodes by what placements cost of their value, until the pool's facts change."""
        self.ranking = NodeRanking(costs)
        for item in self._limited.values():
            item.rank(costs)

    def lay_out(self, entry: "DeviceEntry", before: "DeviceEntry | None" = None) -> None:
        """Give a device of the pool its layout; `before` is the same device before a change of its object."""
        layout = entry.layout = layout_of(entry.facts, self.facts)
        entry.update_usable()
        name = entry.facts.name
        self.differing.pop(name, None)
        if not layout.differs:
            return
        self.differing[name] = layout.missing
        if before is not None and before.layout.count and not before.layout.differs:
            self.layout_losses[name] += 1

    def add_device(self, device: "DeviceFacts") -> None:
        node = device.node
        insort(self.devices_by_node.setdefault(node, []), device.name)
        if device.uuid:
            self.capabilities[device.compute_capability] += 1
        self.mark_rules(node)

    def remove_device(self, device: "DeviceFacts") -> None:
        node = device.node
        self.differing.pop(device.name, None)
        devices = self.devices_by_node[node]
        devices.remove(device.name)
        if device.uuid:
            self.capabilities[device.compute_capability] -= 1
            self.capabilities += Counter()  # without those of no device
        if not devices:
            del self.devices_by_node[node]
        self.mark_rules(node)
        if node not in self.devices_by_node and node not in self._nodes:
            # It was not read since it came, as on a standby: there is nothing to update.
            self._dirty.discard(node)

    def mark(self, node: NodeName) -> None:
        """Have the node recomputed by the next reader."""
        self._dirty.add(node)
        for item in (*self._limited.values(), *self.parts):
            item.mark(node)

    def mark_rules(self, node: NodeName) -> None:
        """Have the node recomputed after a change of more than its free units."""
        self._rules.pop(node, None)
        for part in self.parts:
            part.mark_rules(node)
        self.mark(node)

    def device_rules(self, name: NodeName) -> DeviceRules:
        """Return the pool's devices on a node, and the rules for sets of them."""
        found = self._rules.get(name)
        if found is None:
            found = self._rules[name] = self._read_rules(name)
        return found

    def node(self, name: NodeName) -> PoolNode | None:
        """Return a node's figures; None when it has no units of the pool."""
        self._refresh()
        return self._nodes.get(name)

    def nodes(self) -> "dict[NodeName, PoolNode]":
        """Return all nodes of the pool, to be read and not kept."""
        self._refresh()
        return self._nodes

    def request_of(self, demand: "Demand") -> UnitRequest:
        """Return what decides whether a node fits the demand."""
        self._refresh()
        return request_by_containers(demand) if self._by_containers else UnitRequest(demand.units)

    def view(self, request: UnitRequest) -> FitView:
        self._refresh()
        view = self._views.get(request)
        if view is None:
            view = self._new_view(request)
        return view

    def capacity(self) -> Capacity:
        self._refresh()
        return Capacity(*self._totals)

    def largest_node(self) -> int:
        """Return the largest number of units of one node, taken or not."""
        self._refresh()
        return max(self._sizes, default=0)

    def nodes_by_available(self) -> "Counter[int]":
        """Return units available to a pod that exists -> number of placeable nodes with as many; to be read only."""
        self._refresh()
        return self._nodes_by_available

    def is_constrained(self) -> bool:
        """Say whether more than the number of free units decides on some node whether a pod fits."""
        self._refresh()
        has_rules = self.facts is not None and self.facts.constrains_sets
        return has_rules or bool(self._with_policy)

    def largest_free(self) -> int:
        """Return the largest number of units of one node that a pod that exists may get now."""
        if self.parts:  # a pod has units of one profile
            return max(part.largest_free() for part in self.parts)
        return max(self.nodes_by_available(), default=0)

    def largest_possible(self) -> int:
        """Return the largest number of units that one node has, or can have once its devices are partitioned."""
        if self.facts is None:
            return 0
        devices = max(map(len, self.devices_by_node.values()), default=0)
        return max(self.largest_node(), devices * most_units_of_a_device(self.facts))

    def largest_alignable(self, request: UnitRequest) -> int | None:
        """Return the most units that an aligned set of any node can have, where none can ever serve the request.

        None where a node can, or may yet: its devices are not connected to anything known, or it has no devices. kubelets'
        policies do not count, since they can change under a pod.
        """
        if self.facts is None or not self.devices_by_node:
            return None
        most = most_units_of_a_device(self.facts)
        largest = 0
        for devices in set(map(self.device_rules, self.devices_by_node)):
            units = tuple(max(count, most) for count in devices.capacity)
            if not devices.topology.is_known or fits(devices.without_kubelet(), units, request):
                return None
            largest = max(largest, most_aligned(devices, units))
        return largest

    @property
    def _by_containers(self) -> bool:
        """Whether requests of equally many units may differ."""
        if self.facts is None:
            return False
        return self.facts.slice_placement is SlicePlacement.SAME_DEVICE or bool(self._with_policy)

    def best_node(
        self, request: UnitRequest, accepts: "Callable[[NodeName], bool]"
    ) -> "NodeName | None":
        """Return the best placeable node with enough free units that `accepts` allows.

        Best by the pool's strategy; equal nodes in order of their names. A node with an aligned set goes before one
        without, where the pool prefers that.
        """
        self._refresh()
        if self.facts is None:
            return None
        split: NodeName | None = None
        for name in self._in_order(request, self.facts.strategy):
            unit_counts = self._nodes[name].unit_counts
            if unit_counts is not None and not fits(unit_counts.devices, unit_counts.free, request):
                continue
            if unit_counts is None or not is_split(unit_counts.devices, unit_counts.free, request):
                if accepts(name):
                    return name
            elif split is None and accepts(name):
                split = name
        return split

    def _in_order(self, request: UnitRequest, strategy: "Strategy") -> "Iterator[NodeName]":
        """Yield the placeable nodes with enough free units, the best first, without regard to their topology."""
        if self.ranking is not None:
            yield from self.ranking.order(request, self._nodes)
            return
        size, names_by_bucket = request.units, self._names_by_bucket
        preferences = self._preferences.get(size)
        if preferences is None:
            if len(self._preferences) >= _MAX_VIEWS:
                self._preferences.clear()
            preferences = self._preferences[size] = Preferences(strategy, size)
        prefer = preferences.__getitem__
        buckets = [bucket for bucket in names_by_bucket if bucket[0] >= size]
        buckets.sort(key=prefer)
        for _, alike in groupby(buckets, prefer):
            lists = [names_by_bucket[bucket] for bucket in alike]
            yield from lists[0] if len(lists) == 1 else heapq.merge(*lists)

    def value_lost(self, demand: "Demand", name: NodeName) -> int | None:
        """Return the milli by which a pod lowers the value of a node; None where nodes are not ranked by it."""
        node = self.node(name) if self.ranking is not None else None
        if self.ranking is None or node is None or node.remaining is None:
            return None
        return self.ranking.value_lost(self.request_of(demand), node.remaining)

    def _refresh(self) -> None:
        if not self._dirty:
            return
        by_containers = self._by_containers
        for name in self._dirty:
            before = self._nodes.get(name)
            devices = self.devices_by_node.get(name)
            after = self._summarize(name, devices, self._limit) if devices and self.facts else None
            if before == after:
                continue
            self._move(name, before, after)
            self._count(before, after)
            self._note_policy(name, after)
            if self.ranking is not None:
                self.ranking.mark(name)
            if after is None:
                del self._nodes[name]
            else:
                self._nodes[name] = after
            if self.facts is not None:
                for view in self._views.values():
                    view.update(name, after, self.facts.strategy)
        self._dirty.clear()
        if self._by_containers is not by_containers:
            self._views.clear()

    def _note_policy(self, name: NodeName, node: PoolNode | None) -> None:
        if (
            node is not None
            and node.unit_counts is not None
            and node.unit_counts.devices.kubelet is not None
        ):
            self._with_policy.add(name)
        else:
            self._with_policy.discard(name)

    def _new_view(self, request: UnitRequest) -> FitView:
        view = FitView(request)
        if self.facts is not None:
            for name in sorted(self._nodes):
                view.update(_side_by_side(name), self._nodes[name], self.facts.strategy)
        if len(self._views) >= _MAX_VIEWS:
            del self._views[next(iter(self._views))]
        self._views[request] = view
        return view

    def _move(self, name: NodeName, before: PoolNode | None, after: PoolNode | None) -> None:
        source, target = _bucket_of(before), _bucket_of(after)
        if source == target:
            return
        if source is not None:
            names = self._names_by_bucket[source]
            del names[bisect_left(names, name)]
            if not names:
                del self._names_by_bucket[source]
        if target is not None:
            insort(self._names_by_bucket.setdefault(target, []), name)

    def _count(self, before: PoolNode | None, after: PoolNode | None) -> None:
        old, new = _share_of(before), _share_of(after)
        # Exact: shares are whole numbers, and the one taken away is the one that was added.
        self._totals = tuple(map(operator.add, self._totals, map(operator.sub, new, old)))
        _move_count(self._nodes_by_available, old[_AVAILABLE], new[_AVAILABLE])
        if before is not None and after is not None and before.total == after.total:
            return
        self.sizes_moved += 1
        _move_count(self._sizes, before.total if before else 0, after.total if after else 0)


def _side_by_side(name: NodeName) -> NodeName:
    """Return the name as a new object, whose memory is next to that of the previous one.

    kube-scheduler asks about nodes nearly in the order of their names, so the processor can fetch ahead. The
    decoded objects lie far apart; side by side a look-up takes half the time.
    """
    return NodeName(name.encode().decode())


def _bucket_of(node: PoolNode | None) -> Bucket | None:
    """Return the node's bucket, or None where no units may be reserved."""
    if node is None or not node.is_reservable or node.free == 0:
        return None
    return node.bucket


_NOTHING: Final = (0, 0, 0, 0, 0)
_AVAILABLE: Final = 3
"""Position in a node's share."""


def _move_count(counts: Counter[int], before: int, after: int) -> None:
    """Count a node under another figure; a node with 0 is not counted."""
    if before == after:
        return
    if before:
        counts[before] -= 1
        if not counts[before]:
            del counts[before]
    if after:
        counts[after] += 1


def _share_of(node: PoolNode | None) -> tuple[int, int, int, int, int]:
    """Return a node's part of the pool's `Capacity`, in the order of its fields."""
    if node is None:
        return _NOTHING
    used = node.used + min(node.unaccounted, node.free)
    available = node.available if node.is_placeable else 0
    withheld = node.total - node.reserved - used - available
    return (node.total, node.reserved, used, available, withheld)

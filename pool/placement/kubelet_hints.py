"""NUMA nodes of a pod's units, as kubelet's TopologyManager demands them.

With a policy other than none, kubelet computes for each container (scope pod: for the whole pod) the narrowest set of
NUMA nodes with enough free units: fewest nodes first, lower node numbers first. The set is *preferred* if no smaller
number of nodes has as many units, free or not. `restricted` rejects a pod without a preferred set, `single-numa-node`
one without a set of one node, `best-effort` none. A container that reuses the units of an init container has a set
with the NUMA nodes of all of them. Units without a NUMA node are in no set; where no unit has one, or kubelet has no
other resource to align with ours and our plugins report none (`agent.plugin.numa_hints`), kubelet does not choose.

There `align` answers in the same terms, with two differences: it decides for all containers together, where kubelet's
first container may take what the second one needs, and the caller may try other NUMA nodes first. Where kubelet
itself admits the pod, and the order is ascending, both name the same nodes.

Where kubelet knows the NUMA nodes it decides, and `next_numa_nodes` says how: for one container after the other, in
ascending order. The other resources that it aligns count for nothing: free CPUs by NUMA node are unknown here. kubelet
passes over NUMA nodes that lack them, and may then choose a later set than this one.
"""

from itertools import combinations
from typing import TYPE_CHECKING, Final

import msgspec

from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from pool.demand import reused_units
from pool.model import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pool.model import KubeletTopology

NumaNodes = tuple[int, ...]
"""NUMA nodes in ascending order."""
Aligned = tuple[NumaNodes | None, ...]
"""The NUMA nodes for the units of each container, in kubelet's order; None where any unit will do."""


_Units = tuple[int, ...]
"""Units by place in the order of the NUMA nodes."""


class Unaligned(msgspec.Struct, frozen=True):
    """kubelet would reject the pod."""

    units: int
    """Units of the first container without NUMA nodes, or of the pod."""
    numa_nodes: int
    """On so many NUMA nodes at most they have to be; 0 where no NUMA nodes of this node have that many units."""


def align(
    topology: "KubeletTopology | None",
    capacity: "Mapping[int | None, int]",
    free: "Mapping[int | None, int]",
    *,
    containers: "Sequence[tuple[ContainerRole, int]]",
    order: "Sequence[int] | None" = None,
) -> Aligned | Unaligned:
    """Return the NUMA nodes of each container's units, where kubelet's policy asks for some.

    Args:
        topology: the policy and scope of the node's kubelet; None is unknown, which counts as none.
        capacity: the pool's units of the node by NUMA node, free or not; None: units without a NUMA node.
        free: those that the pod may get.
        containers: role and units of each container, in kubelet's order.
        order: the NUMA nodes to try first, among equally many; ascending if it is None, as kubelet tries them.
    """
    nodes = [node for node in capacity if node is not None and capacity[node]]
    policy = TopologyManagerPolicy.NONE if topology is None else topology.policy
    if topology is None or policy is TopologyManagerPolicy.NONE or not nodes:
        return (None,) * len(containers)
    order = sorted(nodes) if order is None else order
    search = _Search(policy, capacity, order)
    left = tuple(free.get(node, 0) for node in order)
    if topology.scope is TopologyManagerScope.POD:
        units = sum(units for _, units in containers) - sum(reused_units(containers))
        found = search.first([(ContainerRole.MAIN, units)], left)
        return found if isinstance(found, Unaligned) else found * len(containers)
    return search.first(containers, left)


def next_numa_nodes(
    topology: "KubeletTopology",
    capacity: "Mapping[int | None, int]",
    free: "Mapping[int | None, int]",
    *,
    units: int,
    reusable: "Mapping[int | None, int]",
) -> NumaNodes | Unaligned | None:
    """Return the NUMA nodes that kubelet chooses for the units of the next container; None where it takes any.

    Args:
        topology: the settings of the node's kubelet.
        capacity: the pool's units of the node by NUMA node, free or not; None: units without a NUMA node.
        free: those that the container may get.
        units: of the container, or with scope pod of the whole pod.
        reusable: units of init containers that the container may take over.
    """
    order = sorted(node for node in capacity if node is not None and capacity[node])
    if topology.policy is TopologyManagerPolicy.NONE or not order:
        return None
    return _Search(topology.policy, capacity, order).next(
        units,
        tuple(free.get(node, 0) for node in order),
        tuple(reusable.get(node, 0) for node in order),
    )


def most_numa_nodes(
    policy: TopologyManagerPolicy, capacity: "Mapping[int | None, int]", units: int
) -> int | None:
    """Return on how many NUMA nodes so many units may be; None where it does not matter, 0 where none will do."""
    if policy not in _STRICT:
        return None
    fewest = _least_numa_nodes(capacity, units)
    if policy is TopologyManagerPolicy.SINGLE_NUMA_NODE and fewest > 1:
        return 0
    return fewest


_STRICT = (TopologyManagerPolicy.RESTRICTED, TopologyManagerPolicy.SINGLE_NUMA_NODE)


def _least_numa_nodes(capacity: "Mapping[int | None, int]", units: int) -> int:
    """Return the smallest number of NUMA nodes with so many units, free or not; 0 where all have fewer."""
    total = 0
    counts = sorted((count for node, count in capacity.items() if node is not None), reverse=True)
    for number, count in enumerate(counts, 1):
        total += count
        if total >= units:
            return number
    return 0


_NO_MORE: Final[NumaNodes] = (-1,)
MOST_STATES: Final = 1_000
"""Most states of a search; a pod of many containers that fit only in a rare way counts as one that does not."""


class _Search:
    """Depth first, over the sets of NUMA nodes in the order in which kubelet prefers them."""

    def __init__(
        self,
        policy: TopologyManagerPolicy,
        capacity: "Mapping[int | None, int]",
        order: "Sequence[int]",
    ) -> None:
        self._policy = policy
        self._capacity = capacity
        self._order = order

    def first(
        self, containers: "Sequence[tuple[ContainerRole, int]]", free: "_Units"
    ) -> Aligned | Unaligned:
        """Return the first sets with which all containers are served, or the first container that has none."""
        if len(containers) == 1:  # most pods: nothing is left for another one to try
            nodes = self.next(containers[0][1], free, (0,) * len(free))
            return nodes if isinstance(nodes, Unaligned) else (nodes,)
        chosen: list[NumaNodes | None] = []
        states = [(free, (0,) * len(free))]
        # Before each container: the free and the reusable units, by place.
        options: list[Iterator[NumaNodes | None]] = []
        # Of each container, what was not tried yet.
        failed: set[tuple[int, _Units, _Units]] = set()
        furthest = 0
        while len(chosen) < len(containers):
            at = len(chosen)
            if len(options) == at:
                options.append(self._sets(containers[at][1], *states[at]))
            nodes = next(options[at], _NO_MORE)
            if nodes is not _NO_MORE:
                left, reusable = states[at]
                after = self._after(*containers[at], nodes, left=left, reusable=reusable)
                if (at + 1, *after) not in failed:
                    chosen.append(nodes)
                    states.append(after)
                continue
            furthest = max(furthest, at)
            failed.add((at, *states.pop()))
            options.pop()
            if not chosen or len(failed) > MOST_STATES:
                return self._refused(containers[furthest][1])
            chosen.pop()
        return tuple(chosen)

    def next(self, units: int, free: "_Units", reusable: "_Units") -> NumaNodes | Unaligned | None:
        """Return the first set for one container."""
        nodes = next(self._sets(units, free, reusable), _NO_MORE)
        return self._refused(units) if nodes is _NO_MORE else nodes

    def _refused(self, units: int) -> Unaligned:
        return Unaligned(units, most_numa_nodes(self._policy, self._capacity, units) or 0)

    def _sets(self, units: int, left: "_Units", reusable: "_Units") -> "Iterator[NumaNodes | None]":
        places = range(len(self._order))
        held = {place for place in places if reusable[place]} if any(reusable) else None
        most = most_numa_nodes(self._policy, self._capacity, units)
        has_any = False
        for number in range(1, len(self._order) + 1 if most is None else most + 1):
            for combination in combinations(places, number):
                if held and not held <= set(combination):
                    continue
                if sum(left[place] + reusable[place] for place in combination) >= units:
                    has_any = True
                    yield tuple(sorted(self._order[place] for place in combination))
        if most is None and not has_any:
            yield None

    def _after(
        self,
        role: ContainerRole,
        units: int,
        nodes: NumaNodes | None,
        *,
        left: "_Units",
        reusable: "_Units",
    ) -> "tuple[_Units, _Units]":
        """Return the free and the reusable units after a container has got its own."""
        after, kept = list(left), list(reusable)
        for place, count in enumerate(reusable):
            reused = min(units, count)
            units -= reused
            if role is not ContainerRole.INIT:
                kept[place] -= reused
        for place, node in enumerate(self._order):
            if nodes is None or node in nodes:
                fresh = min(units, after[place])
                units -= fresh
                after[place] -= fresh
                if role is ContainerRole.INIT:
                    kept[place] += fresh
        return tuple(after), tuple(kept)

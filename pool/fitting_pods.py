"""How many pods of a size still fit a pool: one size at a time, node by node, as placement would choose their units.

These are pods that exist: units reserved for pods that do not exist yet count as free for them. Where only the number of
free units decides, it is divided by the size. Elsewhere pods are placed one after the other on copies of a node's
devices; equal nodes share the answer.
"""

import functools
from typing import TYPE_CHECKING, Final, final

from api.names import DeviceName, NodeName, UnitId
from pool.index.devices import DeviceEntry
from pool.layout import Layout
from pool.model import ContainerDemand, ContainerRole, Demand, DeviceFacts
from pool.placement.planner import plan_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.names import PoolName
    from pool.index.figures import IndexFigures
    from pool.index.node_view import PoolNode
    from pool.placement.device_rules import DeviceRules

SIZES: Final = (1, 2, 4, 8)
"""Units of a pod."""
Counts = tuple[int, ...]
"""Pods by size."""
_NONE: Final = (0,) * len(SIZES)


def fitting_pods(index: "IndexFigures", pool: "PoolName") -> dict[int, int]:
    """Return, by size, how many pods the pool could take now; nothing is changed."""
    return FittingPods(index, pool).counts()


@final
class FittingPods:
    """The numbers of one pool, counted again for nodes that have changed since the last time."""

    def __init__(self, index: "IndexFigures", pool: "PoolName") -> None:
        self._index = index
        self._pool = pool
        self._nodes: dict[NodeName, PoolNode] = {}
        # as they were when their pods were counted
        self._counts: dict[NodeName, Counts] = {}
        self._totals = list(_NONE)
        self._parts: dict[PoolName, FittingPods] = {}
        # of a pool with several MIG profiles

    def _of_parts(self) -> "list[FittingPods]":
        facts = self._index.pool(self._pool)
        names = [part.name for part in facts.parts] if facts is not None else []
        self._parts = {
            name: self._parts.get(name) or FittingPods(self._index, name) for name in names
        }
        return list(self._parts.values())

    def counts(self) -> dict[int, int]:
        """Return the number of pods by size; a pod has units of one MIG profile."""
        if parts := self._of_parts():
            found = [part.counts() for part in parts]
            return {size: sum(counts[size] for counts in found) for size in SIZES}
        state = self._index.state(self._pool)
        if not state.is_constrained():
            self._forget()
            nodes_by_available = state.nodes_by_available().items()
            return {
                size: sum(free // size * nodes for free, nodes in nodes_by_available)
                for size in SIZES
            }
        nodes = state.nodes()
        for gone in self._nodes.keys() - nodes.keys() if len(nodes) != len(self._nodes) else ():
            self._replace(gone, None)
        for name in self._changed(nodes):
            self._replace(name, nodes[name])
        return dict(zip(SIZES, self._totals, strict=True))

    def count_in_steps(self, nodes_a_step: int) -> "Iterator[None]":
        """Count what has changed in steps, of 20 microseconds a node; it is then little that `counts` has to do."""
        for part in self._of_parts():
            yield from part.count_in_steps(nodes_a_step)
        state = self._index.state(self._pool)
        changed = self._changed(state.nodes()) if state.is_constrained() else []
        for start in range(0, len(changed), nodes_a_step):
            nodes = state.nodes()
            for name in changed[start : start + nodes_a_step]:
                if name in nodes:
                    self._replace(name, nodes[name])
            yield

    def _changed(self, nodes: "Mapping[NodeName, PoolNode]") -> "list[NodeName]":
        return [name for name, node in nodes.items() if self._nodes.get(name) is not node]

    def _replace(self, name: "NodeName", node: "PoolNode | None") -> None:
        before, after = self._counts.pop(name, _NONE), _NONE
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
            after = self._counts[name] = self._count(name, node)
        for place, count in enumerate(after):
            # Whole numbers: what is taken away is what was added.
            self._totals[place] += count - before[place]

    def _forget(self) -> None:
        self._nodes.clear()
        self._counts.clear()
        self._totals = list(_NONE)

    def _count(self, name: "NodeName", node: "PoolNode") -> Counts:
        if not node.is_reservable:
            return _NONE
        if node.unit_counts is None or not node.unit_counts.devices.is_constrained:
            return tuple(node.available // size for size in SIZES)
        entries = self._index.devices_on(self._pool, name)
        return _placed(
            node.unit_counts.devices,
            tuple(
                (entry.layout.count, (entry.observed | entry.confirmed).bit_count())
                if entry.is_usable
                else (0, 0)
                for entry in entries
            ),
        )


@functools.lru_cache(maxsize=4096)
def _placed(rules: "DeviceRules", devices: "tuple[tuple[int, int], ...]") -> Counts:
    """Return how many pods of each size can be placed, one after the other, on devices with so many units and taken ones."""
    return tuple(_placed_of_size(rules, devices, size) for size in SIZES)


def _placed_of_size(rules: "DeviceRules", devices: "Sequence[tuple[int, int]]", size: int) -> int:
    demand = Demand("", (ContainerDemand("main", ContainerRole.MAIN, size),), size)
    entries = [_entry(position, *figures) for position, figures in enumerate(devices)]
    owners = {unit: entry for entry in entries for unit in entry.layout.ids}
    count = 0
    while (plan := plan_devices(entries, demand, rules)) is not None:
        for unit in plan["main"]:
            entry = owners[unit]
            entry.observed |= entry.layout.mask_of((unit,))
        count += 1
    return count


def _entry(position: int, units: int, taken: int) -> DeviceEntry:
    facts = DeviceFacts(name=DeviceName(f"{position}"), node=NodeName(""), uuid="")
    layout = Layout(tuple(UnitId(f"{position}/{slot}") for slot in range(units)))
    return DeviceEntry(facts, layout, observed=(1 << taken) - 1)

"""Devices of a snapshot in figures: what pools have, what is free, and how fragmented that is.

Cordoned nodes, nodes that are not ready and pools that allocate no units are left out.
"""

from typing import TYPE_CHECKING, final

from pool.layout import most_units_of_a_device
from pool.placement.fragmentation.recent_demand import unit_milli
from pool.placement.simulation.losses import Losses
from pool.placement.simulation.model import PoolSize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from api.names import NodeName
    from cli.simulation.snapshot import Snapshot
    from pool.index.devices import DeviceEntry
    from pool.model import PoolFacts
    from pool.placement.fragmentation.target_workload import TargetWorkload
    from pool.placement.planner import Placed

_ANY_MODEL = ""
_UNKNOWN_CPU = 1 << 60
"""Free CPU of a node of which nothing is known: never the limit."""


@final
class FreeDevices:
    """Figures of the devices that a workload may get; those of a changed node are taken again."""

    def __init__(self, snapshot: "Snapshot", targets: "Mapping[str, TargetWorkload]") -> None:
        """Measure every node.

        Args:
            snapshot: the cluster.
            targets: by pool, the demand by which fragmentation is measured.
        """
        self._snapshot = snapshot
        index = snapshot.index
        self.pools = sorted(
            (pool for pool in index.pools() if pool.closed is None), key=lambda pool: pool.name
        )
        self.nodes: dict[NodeName, list[PoolFacts]] = {}
        """Nodes that take pods, with their pools."""
        for name in sorted(index.nodes):
            here = index.pools_on(name)
            pools = [pool for pool in self.pools if pool.name in here]
            if pools and index.nodes[name].is_placeable:
                self.nodes[name] = pools
        self._number = {name: number for number, name in enumerate(self.nodes)}
        self._losses = Losses(targets)
        for name in self.nodes:
            self.measure(name)

    @property
    def fragmentation_milli(self) -> float:
        return self._losses.total_milli

    @property
    def capacity_milli(self) -> int:
        return sum(
            entry.layout.count * unit_milli(pool)
            for name in self.nodes
            for pool, entry in self._entries(name)
        )

    def free_milli(self) -> int:
        """Return the free milli of all devices."""
        return sum(map(self.free_milli_on, self.nodes))

    def free_milli_on(self, node: "NodeName", pool: str | None = None) -> int:
        """Return the free milli of a node's devices, of one pool or of all."""
        free = self._remaining(node)
        return sum(sum(item) for name, item in free.items() if pool in {None, name})

    def sizes(self) -> list[PoolSize]:
        """Return the size of each pool."""
        return [self._size(pool) for pool in self.pools]

    def measure(self, node: "NodeName") -> None:
        """Measure the fragmentation of a node that has changed."""
        if node not in self.nodes:
            return
        free, _ = self._snapshot.index.free_cpu_and_memory(node)
        cpu = _UNKNOWN_CPU if free is None else free
        self._losses.measure(
            self._number[node], self._remaining(node), model=_ANY_MODEL, cpu_milli=cpu
        )

    def positions(self, placed: "Placed") -> tuple[int, ...]:
        """Return the positions of a pod's devices on its node."""
        chosen = {unit for units in placed.devices.values() for unit in units}
        return tuple(
            position
            for position, (_, entry) in enumerate(self._entries(placed.node))
            if not chosen.isdisjoint(entry.layout.ids)
        )

    def _remaining(self, node: "NodeName") -> dict[str, list[int]]:
        free: dict[str, list[int]] = {}
        for pool, entry in self._entries(node):
            free.setdefault(pool.name, []).append(entry.free.bit_count() * unit_milli(pool))
        return free

    def _entries(self, node: "NodeName") -> "Iterator[tuple[PoolFacts, DeviceEntry]]":
        for pool in self.nodes.get(node, ()):
            for entry in self._snapshot.index.devices_on(pool.name, node):
                if entry.layout.count:
                    yield pool, entry

    def _size(self, pool: "PoolFacts") -> PoolSize:
        by_node = [self._of_pool(pool, name) for name in self.nodes]
        entries = [entry for item in by_node for entry in item]
        units = [sum(entry.layout.count for entry in item) for item in by_node]
        return PoolSize(
            name=pool.name,
            units_per_device=most_units_of_a_device(pool),
            devices=len(entries),
            units=sum(units),
            largest_node=max(units, default=0),
            taken_devices=sum(1 - entry.free.bit_count() / entry.layout.count for entry in entries),
        )

    def _of_pool(self, pool: "PoolFacts", node: "NodeName") -> "list[DeviceEntry]":
        return [entry for of, entry in self._entries(node) if of.name == pool.name]


def left_out(snapshot: "Snapshot") -> "Iterable[str]":
    """Say which pools and nodes are left out."""
    index = snapshot.index
    for pool in sorted(index.pools(), key=lambda pool: pool.name):
        if pool.closed is not None:
            yield f"pool {pool.name} is left out: it allocates no units now"
    count = sum(
        bool(index.pools_on(name)) and not index.nodes[name].is_placeable for name in index.nodes
    )
    if count:
        yield f"nodes that are cordoned or not ready are left out: {count}"

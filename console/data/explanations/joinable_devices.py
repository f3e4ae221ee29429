"""Devices in no pool that a pool could take, for explanations."""

from typing import TYPE_CHECKING, Final, final

from inventory.assignment.joining_devices import could_join, joining_obstacle
from pool.what_if.question import JoinableDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.gpupool import GPUPool
    from api.names import DeviceName, NodeName, PoolName
    from console.data.state.cluster import ClusterState

KEPT_S: Final = 5.0
"""An answer is that old at most: the labels of a node, or the annotation of a device, trigger nothing."""
_MOST_NODES: Final = 16
_MOST_DEVICES: Final = 512
"""Most devices that are compared with the selector of a pool; they take 10 ms."""


@final
class JoinableDevices:
    """Devices in no pool by node, and those of them that each pool could take."""

    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self._by_node: dict[NodeName, set[DeviceName]] = {}
        self._node_of: dict[DeviceName, NodeName] = {}
        self._found: dict[PoolName, tuple[float, list[JoinableDevice]]] = {}
        # pool -> when it was looked for, and what was found

    def update(self, devices: "Iterable[DeviceName]") -> None:
        """Read again the devices that have changed."""
        for name in devices:
            node = self._node_of.pop(name, None)
            if node is not None:
                self._drop(name, node)
                self._found.clear()
            entry = self._cluster.index.devices.get(name)
            if entry is not None and entry.facts.pool is None:
                self._node_of[name] = entry.facts.node
                self._by_node.setdefault(entry.facts.node, set()).add(name)
                self._found.clear()

    def of(self, pool: "GPUPool", now: float) -> list[JoinableDevice]:
        """Return those of the first nodes by name."""
        cached = self._found.get(pool.name)
        if cached is None or now - cached[0] >= KEPT_S:
            cached = self._found[pool.name] = (now, self._find(pool))
        return cached[1]

    def _find(self, pool: "GPUPool") -> list[JoinableDevice]:
        found: list[JoinableDevice] = []
        nodes = count = 0
        for node in sorted(self._by_node):
            devices = sorted(self._by_node[node])
            count += len(devices)
            joinable = self._on_node(node, devices, pool)
            found += joinable
            nodes += bool(joinable)
            if nodes >= _MOST_NODES or count >= _MOST_DEVICES:
                break
        return found

    def _on_node(
        self, node: "NodeName", names: "Iterable[DeviceName]", pool: "GPUPool"
    ) -> list[JoinableDevice]:
        facts = self._cluster.index.nodes.get(node)
        if facts is None:
            return []
        found: list[JoinableDevice] = []
        for name in names:
            device = self._cluster.devices.get(name)
            if device is not None and could_join(device, pool):
                obstacle = joining_obstacle(device, pool, facts.labels)
                entry = self._cluster.index.devices[name]
                found.append(JoinableDevice(device=entry.facts, obstacle=obstacle))
        return found

    def _drop(self, name: "DeviceName", node: "NodeName") -> None:
        siblings = self._by_node[node]
        siblings.remove(name)
        if not siblings:
            del self._by_node[node]

"""Kernels that the devices of each node run, over all of its devices and by pool.

Nearly all nodes of a pool have one product, so that a cache is compared with a few sets of targets, not with 40,000
devices.
"""

from typing import TYPE_CHECKING, Final, final

from api.names import PoolName
from kernelcache.compatibility import Fits, device_fit, device_target
from kube.event_source import EventSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.kinds.gkmcache import KernelTarget
    from api.names import NodeName
    from kernelcache.compatibility import UnknownTarget
    from reconciler.controller_spec import ControllerContext
    from reconciler.runtime.device_store import DeviceStore

    Targets = frozenset[KernelTarget | UnknownTarget]

ANY_POOL: Final = PoolName("")
"""Key of all devices of a node, in a pool or not."""
_NO_NODES: "Final[Mapping[NodeName, Targets]]" = {}


@final
class DeviceTargets:
    """Targets by pool and node, kept up to date with the store of GPUDevices."""

    def __init__(self, devices: "DeviceStore") -> None:
        self._devices = devices
        self._by_pool: dict[PoolName, dict[NodeName, Targets]] = {}
        self._by_node: dict[NodeName, dict[PoolName, Targets]] = {}
        self.changes: EventSource[NodeName] = EventSource()
        """Nodes whose devices run other kernels now, or are in other pools."""
        for node in devices.nodes():
            self.observe(node)

    def of_pool(self, pool: PoolName) -> "Mapping[NodeName, Targets]":
        """Return the nodes with devices of the pool, or of `ANY_POOL`, and what these run."""
        return self._by_pool.get(pool, _NO_NODES)

    def pools(self) -> list[PoolName]:
        """Return the pools that have devices, by name."""
        return sorted(self._by_pool.keys() - {ANY_POOL})

    def observe(self, node: "NodeName") -> None:
        """Take over a change of the node's devices."""
        before, now = self._by_node.pop(node, {}), self._read(node)
        if now:
            self._by_node[node] = now
        if before == now:
            return
        for pool in before.keys() - now.keys():
            nodes = self._by_pool[pool]
            del nodes[node]
            if not nodes:
                del self._by_pool[pool]
        for pool, targets in now.items():
            self._by_pool.setdefault(pool, {})[node] = targets
        self.changes.publish(node)

    def _read(self, node: "NodeName") -> "dict[PoolName, Targets]":
        found: dict[PoolName, set[KernelTarget | UnknownTarget]] = {}
        for device in self._devices.on_node(node):
            status = device.status
            target = device_target(status)
            found.setdefault(ANY_POOL, set()).add(target)
            if status.pool_ref is not None:
                found.setdefault(PoolName(status.pool_ref.name), set()).add(target)
        return {pool: frozenset(targets) for pool, targets in found.items()}


def fitting_nodes(
    nodes: "Mapping[NodeName, Targets]", targets: "Iterable[KernelTarget]"
) -> "set[NodeName]":
    """Return the nodes with a device that runs one of the targets; equal sets are compared once."""
    desired = tuple(targets)
    fits_by_targets: dict[Targets, bool] = {}
    found: set[NodeName] = set()
    for node, there in nodes.items():
        fits = fits_by_targets.get(there)
        if fits is None:
            fits = any(isinstance(device_fit(desired, item), Fits) for item in there)
            fits_by_targets[there] = fits
        if fits:
            found.add(node)
    return found


def device_targets(context: "ControllerContext") -> DeviceTargets:
    """Return the term's only view of them."""
    found = DeviceTargets(context.stores.devices)
    context.follow(context.stores.devices.changes, found.observe)
    return found

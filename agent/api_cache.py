"""Cache of this node's GPUDevices and of all GPUPools: one pair of watches a process."""

from typing import TYPE_CHECKING, Any, final

from agent.served_objects import ServedDevice, ServedPool
from kube.informer import Informer, Selection
from kube.resources import GPU_DEVICES, GPU_POOLS
from kube.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from api.clock import Clock
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from kube.client import KubeClient


@final
class NodeObjects:
    """Both caches, and the source of their changes."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, node: str) -> None:
        """Nothing is requested before the informers run."""
        self._devices: Store[GPUDevice] = Store()
        self._pools: Store[GPUPool] = Store()
        on_node = Selection(field_selector=f"status.nodeName={node}")
        self.informers: tuple[Informer[Any], ...] = (
            Informer(
                client,
                GPU_DEVICES,
                ServedDevice,
                sink=self._devices,
                clock=clock,
                selection=on_node,
            ),
            Informer(client, GPU_POOLS, ServedPool, sink=self._pools, clock=clock),
        )

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    async def synced(self) -> None:
        """Return once both caches have synced."""
        for informer in self.informers:
            await informer.synced.wait()

    def devices(self) -> "Iterable[GPUDevice]":
        """Return the devices of this node, by name; none before both caches have synced."""
        return (
            [device for _, device in sorted(self._devices.by_name.items())]
            if self.is_synced
            else ()
        )

    def pools(self) -> "Mapping[str, GPUPool]":
        """Return all pools by name; none before both caches have synced."""
        return self._pools.by_name if self.is_synced else {}

    def is_of_a_pool(self, resource: str) -> bool:
        return any(pool.resource_name == resource for pool in self._pools.by_name.values())

    def subscribe(self, changed: "Callable[[], None]") -> None:
        """Have it called at each change; it must be quick, and not raise."""
        for store in (self._devices, self._pools):
            store.changes.subscribe(lambda _name: changed())

"""Cache of this node's GPUDevices and of all GPUPools: one pair of watches a process."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from kube.informer import Informer, Selection
from kube.resources import GPU_DEVICES, GPU_POOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from api.clock import Clock
    from kube.client import KubeClient

T = TypeVar("T", GPUDevice, GPUPool)


@final
class NodeObjects:
    """Both caches, and the listeners of their changes."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, node: str) -> None:
        """Nothing is requested before the informers run."""
        self.listeners: list[Callable[[], None]] = []
        """Called at each change; quick, and must not raise."""
        self._devices: _ByName[GPUDevice] = _ByName(self._notify)
        self._pools: _ByName[GPUPool] = _ByName(self._notify)
        on_node = Selection(field_selector=f"status.nodeName={node}")
        self.informers: tuple[Informer[Any], ...] = (
            Informer(
                client, GPU_DEVICES, GPUDevice, sink=self._devices, clock=clock, selection=on_node
            ),
            Informer(client, GPU_POOLS, GPUPool, sink=self._pools, clock=clock),
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
            [device for _, device in sorted(self._devices.items.items())] if self.is_synced else ()
        )

    def pools(self) -> "Mapping[str, GPUPool]":
        """Return all pools by name; none before both caches have synced."""
        return self._pools.items if self.is_synced else {}

    def is_of_a_pool(self, resource: str) -> bool:
        return any(pool.resource_name == resource for pool in self._pools.items.values())

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()


@final
class _ByName(Generic[T]):
    """Store by name: the sink of one informer."""

    def __init__(self, notify: "Callable[[], None]") -> None:
        self.items: dict[str, T] = {}
        self._notify = notify

    def replace_all(self, items: "Sequence[T]") -> None:
        self.items = {item.metadata.name: item for item in items}
        self._notify()

    def upsert(self, item: T) -> None:
        self.items[item.metadata.name] = item
        self._notify()

    def discard(self, item: T) -> None:
        self.items.pop(item.metadata.name, None)
        self._notify()

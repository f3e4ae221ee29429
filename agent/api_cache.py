"""What the API server shows of this node's GPUDevices, and of all GPUPools: one pair of watches a process."""

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
    """Both kinds, and who is told of changes."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, node: str) -> None:
        """Take the node; nothing is asked before the informers run."""
        self.listeners: list[Callable[[], None]] = []
        """Called at each change; quick, and must not raise."""
        self._devices: _ByName[GPUDevice] = _ByName(self._tell)
        self._pools: _ByName[GPUPool] = _ByName(self._tell)
        on_node = Selection(field_selector=f"status.nodeName={node}")
        self.informers: tuple[Informer[Any], ...] = (
            Informer(
                client, GPU_DEVICES, GPUDevice, sink=self._devices, clock=clock, selection=on_node
            ),
            Informer(client, GPU_POOLS, GPUPool, sink=self._pools, clock=clock),
        )

    @property
    def is_synced(self) -> bool:
        """Say whether both lists were read once."""
        return all(informer.synced.is_set() for informer in self.informers)

    async def synced(self) -> None:
        """Return when both lists were read once."""
        for informer in self.informers:
            await informer.synced.wait()

    def devices(self) -> "Iterable[GPUDevice]":
        """Return the devices of this node, by name; none before both lists were read."""
        return (
            [device for _, device in sorted(self._devices.items.items())] if self.is_synced else ()
        )

    def pools(self) -> "Mapping[str, GPUPool]":
        """Return all pools by name; none before both lists were read."""
        return self._pools.items if self.is_synced else {}

    def is_of_a_pool(self, resource: str) -> bool:
        """Say whether a resource is a pool's."""
        return any(pool.resource_name == resource for pool in self._pools.items.values())

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()


@final
class _ByName(Generic[T]):
    """The sink of an informer."""

    def __init__(self, tell: "Callable[[], None]") -> None:
        self.items: dict[str, T] = {}
        self._tell = tell

    def replace_all(self, items: "Sequence[T]") -> None:
        self.items = {item.metadata.name: item for item in items}
        self._tell()

    def upsert(self, item: T) -> None:
        self.items[item.metadata.name] = item
        self._tell()

    def discard(self, item: T) -> None:
        self.items.pop(item.metadata.name, None)
        self._tell()

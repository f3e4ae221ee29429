"""Cache of this node's GPUDevices and of all GPUPools: one pair of watches a process."""

from typing import TYPE_CHECKING, Annotated, Any, final

import msgspec
from msgspec import Meta

from api.kinds import gpupool
from api.kinds.autoscaling import Autoscaling, AutoscalingStatus
from api.kinds.device_selector import DeviceSelector
from api.kinds.gpudevice import DeviceState, GPUDevice, GPUDeviceStatus
from api.names import MOST_SLICES_READ
from kube.informer import Informer, Selection
from kube.resources import GPU_DEVICES, GPU_POOLS
from kube.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from api.clock import Clock
    from kube.client import KubeClient

Slices = Annotated[int, Meta(ge=1, le=MOST_SLICES_READ)]


class _Allocation(gpupool.Allocation, frozen=True):
    slices_per_device: Slices | None = None


class _EffectiveAllocation(gpupool.EffectiveAllocation, frozen=True):
    slices_per_device: Slices = 1


class _PoolSpec(gpupool.GPUPoolSpec, frozen=True):
    allocation: _Allocation = _Allocation()
    device_selector: DeviceSelector = msgspec.field(default=DeviceSelector(), name="-selector")
    assignment: gpupool.Assignment = msgspec.field(default=gpupool.Assignment(), name="-assignment")
    access: gpupool.Access = msgspec.field(default=gpupool.Access(), name="-access")
    scheduling: gpupool.Scheduling = msgspec.field(default=gpupool.Scheduling(), name="-scheduling")
    reservation: gpupool.ReservationPolicy = msgspec.field(
        default=gpupool.ReservationPolicy(), name="-reservation"
    )
    maintenance: gpupool.Maintenance = msgspec.field(
        default=gpupool.Maintenance(), name="-maintenance"
    )
    pod_baseline: gpupool.PodBaseline = msgspec.field(
        default=gpupool.PodBaseline.OFF, name="-podBaseline"
    )
    repair: gpupool.RepairPolicy = msgspec.field(default=gpupool.RepairPolicy.OFF, name="-repair")
    autoscaling: Autoscaling | None = msgspec.field(default=None, name="-autoscaling")


class _PoolStatus(gpupool.GPUPoolStatus, frozen=True):
    allocation: _EffectiveAllocation | None = None
    strategy: gpupool.Strategy | None = msgspec.field(default=None, name="-strategy")
    autoscaling: AutoscalingStatus | None = msgspec.field(default=None, name="-autoscaling")


class ServedPool(gpupool.GPUPool, frozen=True):
    """A pool whose units an agent offers; what decides about its pods has its default."""

    spec: _PoolSpec = _PoolSpec()
    status: _PoolStatus = _PoolStatus()


class _DeviceStatus(GPUDeviceStatus, frozen=True):
    state: DeviceState = msgspec.field(default=DeviceState.UNASSIGNED, name="-state")


class ServedDevice(GPUDevice, frozen=True):
    """A device of the node; its state, which follows from the rest, has its default."""

    status: _DeviceStatus = _DeviceStatus()


@final
class NodeObjects:
    """Both caches, and the source of their changes."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, node: str) -> None:
        """Nothing is requested before the informers run."""
        self._devices: Store[GPUDevice] = Store()
        self._pools: Store[gpupool.GPUPool] = Store()
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

    def pools(self) -> "Mapping[str, gpupool.GPUPool]":
        """Return all pools by name; none before both caches have synced."""
        return self._pools.by_name if self.is_synced else {}

    def is_of_a_pool(self, resource: str) -> bool:
        return any(resource in pool.resources for pool in self._pools.by_name.values())

    def subscribe(self, changed: "Callable[[], None]") -> None:
        """Have it called at each change; it must be quick, and not raise."""
        for store in (self._devices, self._pools):
            store.changes.subscribe(lambda _name: changed())

"""Dependencies of the partitioner: the objects it reads, and the receivers of its results."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from agent.health.states import DeviceHealthState
    from agent.problems.registry import ProblemRegistry
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from kube.event_recorder import EventRecorder


class ObjectCache(Protocol):
    """Cached objects; `agent.api_cache.NodeObjects`."""

    async def synced(self) -> None:
        """Return once the cache has synced."""

    def devices(self) -> "Iterable[GPUDevice]":
        """Return the GPUDevices of this node; none before the cache has synced."""

    def pools(self) -> "Mapping[str, GPUPool]":
        """Return all pools by name; none before the cache has synced."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionerDependencies:
    """None of these may block or raise."""

    objects: ObjectCache
    health: "Callable[[str], DeviceHealthState]"
    """Health of a device by its UUID."""
    in_use: "Callable[[], Collection[str] | None]"
    """Units, and UUIDs of devices and MIG instances, that live pods of this node are assigned or were allocated;
    None while that is unknown."""
    events: "EventRecorder"
    problems: "ProblemRegistry"
    after_change: "Callable[[], None]"
    """A device was partitioned: its inventory is to be published."""

"""What `agent.mig.partitioner` needs to know of the world, and whom it tells."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Literal

    from agent.health.verdicts import DeviceHealthState
    from agent.problems.registry import ProblemRegistry
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from telemetry.reasons import EventReason


class Wishes(Protocol):
    """What the API server shows of this node's devices, and of pools."""

    def devices(self) -> "Iterable[GPUDevice]":
        """Return the devices of this node; none while the watch has not shown them."""

    def pools(self) -> "Mapping[str, GPUPool]":
        """Return all pools by name; none while the watch has not shown them."""


class DeviceEvents(Protocol):
    """Takes events; `agent.events.NodeEvents`."""

    def tell_device(
        self,
        device: "GPUDevice",
        reason: "EventReason",
        note: str,
        *,
        type_: "Literal['Normal', 'Warning']",
    ) -> None:
        """Have an event written soon; never blocks, never raises."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionerDependencies:
    """What cutting needs to know, and whom it tells; nothing of it may block or raise."""

    wishes: Wishes
    health: "Callable[[str], DeviceHealthState]"
    """The verdict on a card by its UUID."""
    in_use: "Callable[[], Collection[str] | None]"
    """Units, and UUIDs of cards and MIG instances, that live pods of this node were given or promised;
    None while that is not known."""
    events: DeviceEvents
    problems: "ProblemRegistry"
    after_change: "Callable[[], None]"
    """A card was cut: what it is now should be published."""

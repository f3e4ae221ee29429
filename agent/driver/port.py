"""The driver of a node's cards, as the rest of the agent sees it: values, and what may be asked.

`agent.nvml.driver` is the real one. Nothing here blocks: whoever implements `Driver` bounds every call, because
NVML may hang for minutes, or for ever, when a card falls off its bus.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Sequence


class LinkType(Enum):
    """How two cards of a node are connected; the value is what is published."""

    NVLINK = "NVLink"
    PIX = "PIX"
    """One PCIe switch."""
    PXB = "PXB"
    """Several PCIe switches, no host bridge."""
    PHB = "PHB"
    """The host bridge."""
    NODE = "NODE"
    """Host bridges of one NUMA node."""
    SYS = "SYS"
    """The interconnect of NUMA nodes."""


@final
@dataclass(frozen=True, slots=True, order=True)
class DriverLink:
    """A connection to another card of the node."""

    peer: str
    """Its PCI address."""
    type: LinkType
    count: int = 1
    """Of NVLinks; 1 for PCIe."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInstance:
    """A MIG instance: a GPU instance with its one compute instance."""

    gpu_instance: int
    """NVML's id of the GPU instance on its card."""
    profile: str
    """Such as `1g.10gb`; `1c.3g.40gb` where somebody made a compute instance with a part of it."""
    uuid: str = ""
    """`MIG-…`; empty while it has no compute instance, as after a crash between the two steps."""
    compute_instance: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A form of GPU instance that a card can be cut into."""

    name: str
    capacity: int
    """How many fit an empty card."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDevice:
    """What the driver says of a card; None is what it does not say or support."""

    address: str
    """Lower case with a four-digit domain, such as `0000:3b:00.0`."""
    uuid: str
    minor: int
    """Of its device file: 0 is /dev/nvidia0; -1 where the driver does not say."""
    product: str
    """As the driver names it; empty where it does not."""
    memory_mib: int | None = None
    compute_capability: str | None = None
    """`9.0`."""
    power_limit_watts: int | None = None
    max_power_limit_watts: int | None = None
    links: tuple[DriverLink, ...] = ()
    is_mig_capable: bool = False
    is_mig_enabled: bool = False
    is_mig_pending: bool | None = None
    """What the mode will be after a reset, where that differs; else None."""
    profiles: tuple[Profile, ...] = ()
    instances: tuple[DriverInstance, ...] = ()
    processes: int = 0
    """That run on it, or on its instances, now; those that the agent's PID namespace has."""
    temperature_celsius: int | None = None
    shutdown_temperature_celsius: int | None = None
    uncorrectable_errors: int | None = None
    """Of ECC, since the driver was loaded."""
    is_row_remap_failed: bool = False
    is_lost: bool = False
    """The driver knows it, and does not reach it any more: only address, uuid and minor are said."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSnapshot:
    """What one look at the driver showed."""

    driver_version: str
    cuda_version: str
    """`12.8`."""
    devices: tuple[DriverDevice, ...]
    """By address."""


class EventKind(Enum):
    """What the driver tells by itself."""

    XID = "Xid"
    DOUBLE_BIT_ECC = "DoubleBitEcc"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEvent:
    """Something that happened to a card."""

    uuid: str
    """Empty where the driver does not say which card: then it is every one's."""
    kind: EventKind
    code: int = 0
    """The Xid."""


class Driver(Protocol):
    """What may be asked.

    Every method is bounded, and raises `agent.errors.DriverUnavailable` where there is no driver, where it
    went away, or where it did not answer in time.
    """

    async def look(self) -> DriverSnapshot:
        """Look at all cards; a card that is lost is one with `is_lost`, not an error."""

    async def wait_for_events(self, within_s: float) -> "Sequence[DriverEvent]":
        """Return what happened, as soon as something does; nothing once the time is over.

        May be awaited while the other methods are.
        """

    async def set_mig(self, uuid: str, *, is_enabled: bool) -> bool:
        """Set a card's MIG mode; return whether it is in effect, which on some cards takes a reset.

        Raises:
            PartitioningRefused: the driver refuses, as where somebody uses the card.
        """

    async def create_instance(self, uuid: str, profile: str) -> None:
        """Make a GPU instance of the profile with one compute instance that has all of it.

        Raises:
            PartitioningRefused: there is no room, no such profile, or the driver refuses.
        """

    async def complete_instance(self, uuid: str, gpu_instance: int) -> None:
        """Make the compute instance that a GPU instance lacks.

        Raises:
            PartitioningRefused: the driver refuses.
        """

    async def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        """Destroy a GPU instance and its compute instances.

        Raises:
            PartitioningRefused: something runs on it, or the driver refuses.
        """

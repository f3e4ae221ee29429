"""The driver of a node's devices as two ports: `DeviceDriver` reads devices, `PartitionDriver` makes instances of them.

`agent.nvml.driver` is the real one of both; the driver of devices that cannot be partitioned is a `DeviceDriver` only.
Nothing here blocks: every call is bounded, because NVML may hang for minutes, or for ever, when a device falls off its
bus.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.mig.layout import InstancePlacement
    from inventory.health.recovery import RecoveryAction


class LinkType(Enum):
    """Connection of two devices of a node; the value is published."""

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
    """A connection to another device of the node."""

    peer: str
    """Its PCI address."""
    type: LinkType
    count: int = 1
    """Count of NVLinks; 1 for PCIe."""
    is_direct: bool = field(default=False, compare=False)
    """An NVLink without a switch: both devices are reset together."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInstance:
    """A MIG instance: a GPU instance with its one compute instance."""

    gpu_instance: int
    """NVML's id of the GPU instance on its device."""
    profile: str
    """Such as `1g.10gb`; `1c.3g.40gb` with a compute instance that has only a part of it."""
    uuid: str = ""
    """`MIG-…`; empty while it has no compute instance, as after a crash between the two steps."""
    compute_instance: int | None = None
    start: int | None = field(default=None, compare=False)
    """First memory slice of the GPU instance."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile of GPU instances that a device supports."""

    name: str
    capacity: int
    """Number of instances that fit an empty device."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDevice:
    """The driver's facts of a device; None is unknown or unsupported."""

    address: str
    """Lower case with a four-digit domain, such as `0000:3b:00.0`."""
    uuid: str
    minor: int
    """Minor number of its device file: 0 is /dev/nvidia0; -1 where unknown."""
    product: str
    """Product in the driver's spelling; empty where unknown."""
    memory_mib: int | None = None
    compute_capability: str | None = None
    """`9.0`."""
    power_limit_watts: int | None = None
    max_power_limit_watts: int | None = None
    links: tuple[DriverLink, ...] = ()
    is_mig_capable: bool = False
    is_mig_enabled: bool = False
    is_mig_pending: bool | None = None
    """The mode after a reset, where that differs; else None."""
    profiles: tuple[Profile, ...] = ()
    instances: tuple[DriverInstance, ...] = ()
    processes: int = 0
    """Processes that use it or its instances now, in the agent's PID namespace."""
    temperature_celsius: int | None = None
    shutdown_temperature_celsius: int | None = None
    uncorrectable_errors: int | None = None
    """Uncorrectable errors of ECC, since the driver was loaded."""
    is_row_remap_failed: bool | None = None
    """None where the driver does not answer, or the device has no rows to remap."""
    recovery_action: "RecoveryAction | None" = None
    """None where the driver does not have the field, or does not say it; UNKNOWN for one of a newer version."""
    is_lost: bool = False
    """The driver knows it and no longer reaches it: only address, uuid and minor are set."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSnapshot:
    """State of all devices at one moment."""

    driver_version: str
    cuda_version: str
    """`12.8`."""
    devices: tuple[DriverDevice, ...]
    """Devices by address."""


class EventKind(Enum):
    """Kinds of driver events."""

    XID = "Xid"
    DOUBLE_BIT_ECC = "DoubleBitEcc"
    RECOVERY_ACTION = "RecoveryAction"
    """A device's recovery action changed."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEvent:
    """An event of a device."""

    uuid: str
    """Empty for an event about every device."""
    kind: EventKind
    code: int = 0
    """The Xid."""


class DeviceDriver(Protocol):
    """Reads devices, and follows their events.

    Every method is bounded, and raises `agent.errors.DriverUnavailableError` where the driver is missing, goes away,
    or does not answer in time.
    """

    async def read(self) -> DriverSnapshot:
        """Read all devices; a lost device has `is_lost`, and is no error."""

    async def recovery_actions(self) -> "Mapping[str, RecoveryAction | None]":
        """Return the present recovery actions by UUID, of the devices that answer (`DriverDevice.recovery_action`)."""

    async def wait_for_events(self, within_s: float) -> "Sequence[DriverEvent]":
        """Return events as soon as there are any; none once the time is over.

        May be awaited while the other methods are.
        """


class PartitionDriver(DeviceDriver, Protocol):
    """Makes and destroys MIG instances of the devices that it reads; its methods fail as those of `DeviceDriver`."""

    async def set_mig(self, uuid: str, *, is_enabled: bool) -> bool:
        """Set a device's MIG mode; return whether it is in effect, which on some devices takes a reset.

        Raises:
            PartitioningError: the driver refuses, as for a device in use.
        """

    async def create_instance(
        self, uuid: str, profile: str, *, place: "InstancePlacement | None" = None
    ) -> None:
        """Create a GPU instance of the profile with one compute instance that has all of it.

        It lies at the place; without one, where the driver chooses.

        Raises:
            PartitioningError: there is no space, no such profile, or the driver refuses.
        """

    async def complete_instance(self, uuid: str, gpu_instance: int) -> None:
        """Create the missing compute instance of a GPU instance.

        Raises:
            PartitioningError: the driver refuses.
        """

    async def reset(self, uuids: "Sequence[str]") -> None:
        """Reset devices, together.

        Raises:
            ResetRefusedError: the driver refuses.
            DriverUnavailableError: as everywhere; with DriverHangs where the reset does not end in time.
        """

    async def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        """Destroy a GPU instance and its compute instances.

        Raises:
            PartitioningError: a process uses it, or the driver refuses.
        """

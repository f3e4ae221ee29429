"""How a card comes to be cut as its pool wants it: the next step, as a function of what is.

Nothing is remembered between steps: each is planned from a fresh look, so that a crash after any of them,
or in the middle of one (a GPU instance without its compute instance), goes on from what is there. A right
instance is never destroyed, and what is as wanted needs no step.

A card is touched only while nothing uses it: no process, and no live pod that was given the card or one of
its instances. Between that check and the step, which may wait some seconds for its turn with the driver, a
pod may still be admitted. Two others prevent harm: the control plane keeps a pool in maintenance until no
unit of it is in use, and gives nothing out meanwhile (docs/design/0005); and NVML refuses to destroy an
instance, or to switch the mode of a card, that is in use (NVML_ERROR_IN_USE). mig-manager does not check
(gpu-operator#262); where it runs too, it must be told not to touch these nodes.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import AllocationMode
from api.text import listed
from api.units import part_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agent.driver.port import DriverDevice, DriverInstance
    from agent.health.verdicts import DeviceHealthState
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool


@final
@dataclass(frozen=True, slots=True)
class WantedLayout:
    """How a card is to be: whole, or cut into instances of one profile as far as they fit."""

    profile: str = ""
    """Such as `1g.10gb`; empty for a whole card, with MIG off."""

    def __str__(self) -> str:
        return f"instances of {self.profile}" if self.profile else "whole"


WHOLE: Final = WantedLayout()


@final
@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """Nobody says how the card is to be."""

    text: str


def wanted_of(device: "GPUDevice", pools: "Mapping[str, GPUPool]") -> WantedLayout | LeaveAlone:
    """Return what the pool that has a device wants its card to be now.

    That is the pool's recorded allocation, not its spec: it is recorded once no unit is in use.
    """
    status = device.status
    if not status.uuid:
        return LeaveAlone("its UUID is not known")
    if device.is_ignored or not status.managed:
        return LeaveAlone("it is kept out of pools")
    if status.pool_ref is None:
        return LeaveAlone("it is in no pool")
    if device.is_draining:
        return LeaveAlone("it leaves its pool")
    pool = pools.get(status.pool_ref.name)
    if pool is None or pool.metadata.deletion_timestamp:
        return LeaveAlone(f"its pool {status.pool_ref.name} is gone, or going")
    allocation = pool.status.allocation
    if allocation is None:
        return LeaveAlone(f"its pool {pool.name} has not recorded an allocation yet")
    return WantedLayout(allocation.mig_profile) if allocation.mode is AllocationMode.MIG else WHOLE


# --- steps ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class EnableMode:
    """MIG on; also to take back that it is to be off after the next reset."""


@final
@dataclass(frozen=True, slots=True)
class DisableMode:
    """MIG off, with no instance left; also to take back that it is to be on after the next reset."""


@final
@dataclass(frozen=True, slots=True)
class Destroy:
    """An instance that is not of the wanted profile, or of a card that is to be whole."""

    gpu_instance: int
    profile: str


@final
@dataclass(frozen=True, slots=True)
class Complete:
    """A GPU instance of the wanted profile lacks its compute instance."""

    gpu_instance: int
    profile: str


@final
@dataclass(frozen=True, slots=True)
class Create:
    """One more instance of the wanted profile."""

    profile: str


@final
@dataclass(frozen=True, slots=True)
class Done:
    """The card is as it is wanted."""


class BlockReason(Enum):
    """Why a card cannot be brought nearer to what is wanted."""

    LOST = "lost"
    UNHEALTHY = "unhealthy"
    NOT_SUPPORTED = "not supported"
    NO_SUCH_PROFILE = "no such profile"
    RESET_NEEDED = "reset needed"
    USE_UNKNOWN = "use unknown"
    IN_USE = "in use"
    RUNNING = "running"
    REFUSED = "refused"
    """By the driver."""

    @property
    def is_of_use(self) -> bool:
        """Say whether it passes by itself as soon as the card's users are gone, or known."""
        return self in {BlockReason.USE_UNKNOWN, BlockReason.IN_USE, BlockReason.RUNNING}


@final
@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing can be done now; the text says why and what to do."""

    reason: BlockReason
    text: str


def mig_layout(device: "DriverDevice") -> "tuple[bool, bool | None, tuple[DriverInstance, ...]]":
    """Return what steps change of a card; the same before and after one means that it did nothing."""
    return device.is_mig_enabled, device.is_mig_pending, device.instances


Action = EnableMode | DisableMode | Destroy | Complete | Create
Step = Action | Done | Blocked


def next_step(
    device: "DriverDevice",
    wanted: WantedLayout,
    *,
    health: "DeviceHealthState",
    in_use: "Collection[str] | None",
) -> Step:
    """Return what brings the card one step nearer to what is wanted.

    Args:
        device: as a fresh look shows it.
        wanted: how it is to be.
        health: the verdict on it.
        in_use: units and UUIDs of cards and MIG instances that live pods of this node were given, or
            were promised; None where that is not known.
    """
    if device.is_lost:
        return Blocked(BlockReason.LOST, "the driver does not reach it any more")
    step = _to_instances(device, wanted.profile) if wanted.profile else _to_whole(device)
    if isinstance(step, Done | Blocked):
        return step
    return _hindrance(device, health, in_use) or step


def _to_whole(device: "DriverDevice") -> Step:
    if not device.is_mig_enabled:
        # A mode that waits for a reset is taken back.
        return DisableMode() if device.is_mig_pending else Done()
    for instance in device.instances:
        return Destroy(instance.gpu_instance, instance.profile)
    return DisableMode() if device.is_mig_pending is not False else _reset_needed(device, "off")


def _to_instances(device: "DriverDevice", profile: str) -> Step:
    if not device.is_mig_capable:
        text = (
            f"{device.product} knows no MIG: take it out of the pool, or give the pool another mode"
        )
        return Blocked(BlockReason.NOT_SUPPORTED, text)
    known = [one for one in device.profiles if one.name == profile and one.capacity > 0]
    # Where the driver names no profile at all while MIG is off, it may do so once it is on.
    if not known and (device.profiles or device.is_mig_enabled):
        names = listed(one.name for one in device.profiles) or "none"
        return Blocked(
            BlockReason.NO_SUCH_PROFILE,
            f"{device.product} has no profile {profile}; it has {names}",
        )
    if not device.is_mig_enabled:
        return _reset_needed(device, "on") if device.is_mig_pending else EnableMode()
    if device.is_mig_pending is False:
        return EnableMode()
    return _cut(device.instances, profile, capacity=known[0].capacity)


def _cut(instances: "tuple[DriverInstance, ...]", profile: str, *, capacity: int) -> Step:
    """Others go first, since they take the room; what a crash left unfinished is finished before more."""
    for one in instances:
        if one.profile != profile:
            return Destroy(one.gpu_instance, one.profile)
    for one in instances:
        if not one.uuid:
            return Complete(one.gpu_instance, one.profile)
    return Create(profile) if len(instances) < capacity else Done()


def _reset_needed(device: "DriverDevice", mode: str) -> Blocked:
    text = (
        f"MIG is {mode} after a reset of the card only: nvidia-smi --gpu-reset -i {device.uuid},"
        " or reboot the node"
    )
    return Blocked(BlockReason.RESET_NEEDED, text)


def _hindrance(
    device: "DriverDevice", health: "DeviceHealthState", in_use: "Collection[str] | None"
) -> Blocked | None:
    if not health.is_healthy:
        return Blocked(BlockReason.UNHEALTHY, f"it is not healthy ({health.reason}): {health.text}")
    if in_use is None:
        return Blocked(BlockReason.USE_UNKNOWN, "who uses it is not known yet")
    own = {device.uuid, *(one.uuid for one in device.instances)} - {""}
    used = own & {part_of(unit) for unit in in_use}
    if used:
        return Blocked(BlockReason.IN_USE, f"pods of this node have {listed(used)}: they end first")
    if device.processes:
        return Blocked(
            BlockReason.RUNNING, "processes run on it (nvidia-smi shows which): they must end first"
        )
    return None

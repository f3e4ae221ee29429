"""Planner of a device's layout: the next step, as a function of the present state.

No state is kept between steps: each is planned from a fresh snapshot, so that a crash after any of them, or in
the middle of one (a GPU instance without its compute instance), continues from there. An instance of the right
profile is never destroyed, and a finished layout needs no step.

A device is changed only while it is unused: no process runs on it, and no live pod is assigned or was allocated
the device or one of its instances. Between that check and the step, which may wait some seconds for its turn
with the driver, a pod may still be admitted. Two others prevent harm: the control plane keeps a pool in
maintenance until no unit of it is in use, and allocates nothing meanwhile (docs/design/0005); and NVML refuses to
destroy an instance, or to switch the mode of a device, that is in use (NVML_ERROR_IN_USE). mig-manager does not
check (gpu-operator#262); where it runs too, it must be configured to leave these nodes alone.
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
    from agent.health.states import DeviceHealthState
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool


@final
@dataclass(frozen=True, slots=True)
class DesiredLayout:
    """Layout of a device: whole, or as many instances of one profile as fit."""

    profile: str = ""
    """Such as `1g.10gb`; empty for a whole device, with MIG off."""

    def __str__(self) -> str:
        return f"instances of {self.profile}" if self.profile else "whole"


WHOLE: Final = DesiredLayout()


@final
@dataclass(frozen=True, slots=True)
class Unmanaged:
    """No pool defines the layout of the device."""

    text: str


def desired_layout(
    device: "GPUDevice", pools: "Mapping[str, GPUPool]"
) -> DesiredLayout | Unmanaged:
    """Return the layout that a device's pool wants now.

    That is the pool's recorded allocation, not its spec: it is recorded once no unit is in use.
    """
    status = device.status
    if not status.uuid:
        return Unmanaged("its UUID is unknown")
    if device.is_ignored or not status.managed:
        return Unmanaged("it is kept out of pools")
    if status.pool_ref is None:
        return Unmanaged("it is in no pool")
    if device.is_draining:
        return Unmanaged("it leaves its pool")
    pool = pools.get(status.pool_ref.name)
    if pool is None or pool.metadata.deletion_timestamp:
        return Unmanaged(f"its pool {status.pool_ref.name} is deleted or being deleted")
    allocation = pool.status.allocation
    if allocation is None:
        return Unmanaged(f"its pool {pool.name} has not recorded an allocation yet")
    return DesiredLayout(allocation.mig_profile) if allocation.mode is AllocationMode.MIG else WHOLE


@final
@dataclass(frozen=True, slots=True)
class EnableMode:
    """MIG on; also to revert a mode change that waits for a reset."""


@final
@dataclass(frozen=True, slots=True)
class DisableMode:
    """MIG off, with no instance left; also to revert a mode change that waits for a reset."""


@final
@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy an instance of another profile, or one of a device that is to be whole."""

    gpu_instance: int
    profile: str


@final
@dataclass(frozen=True, slots=True)
class Complete:
    """Create the missing compute instance of a GPU instance."""

    gpu_instance: int
    profile: str


@final
@dataclass(frozen=True, slots=True)
class Create:
    """Create one more instance of the profile."""

    profile: str


@final
@dataclass(frozen=True, slots=True)
class Done:
    """The device has the desired layout."""


class BlockReason(Enum):
    """Why no step towards the desired layout is possible."""

    LOST = "lost"
    UNHEALTHY = "unhealthy"
    NOT_SUPPORTED = "not supported"
    NO_SUCH_PROFILE = "no such profile"
    RESET_NEEDED = "reset needed"
    USE_UNKNOWN = "use unknown"
    IN_USE = "in use"
    RUNNING = "running"
    REFUSED = "refused"
    """The driver rejects a step."""

    @property
    def is_of_use(self) -> bool:
        """Whether it passes by itself once the device's users are gone, or known."""
        return self in {BlockReason.USE_UNKNOWN, BlockReason.IN_USE, BlockReason.RUNNING}


@final
@dataclass(frozen=True, slots=True)
class Blocked:
    """No step is possible now; the text has the cause and the cure."""

    reason: BlockReason
    text: str


def mig_layout(device: "DriverDevice") -> "tuple[bool, bool | None, tuple[DriverInstance, ...]]":
    """Return the state that steps change; the same before and after a step means that it had no effect."""
    return device.is_mig_enabled, device.is_mig_pending, device.instances


Action = EnableMode | DisableMode | Destroy | Complete | Create
Step = Action | Done | Blocked


def next_step(
    device: "DriverDevice",
    wanted: DesiredLayout,
    *,
    health: "DeviceHealthState",
    in_use: "Collection[str] | None",
) -> Step:
    """Return the next step towards the desired layout.

    Args:
        device: from a fresh snapshot.
        wanted: the desired layout.
        health: of the device.
        in_use: units and UUIDs of devices and MIG instances that live pods of this node are assigned or were
            allocated; None while that is unknown.
    """
    if device.is_lost:
        return Blocked(BlockReason.LOST, "the driver no longer reaches it")
    step = _to_instances(device, wanted.profile) if wanted.profile else _to_whole(device)
    if isinstance(step, Done | Blocked):
        return step
    return _obstacle(device, health, in_use) or step


def _to_whole(device: "DriverDevice") -> Step:
    if not device.is_mig_enabled:
        # A mode change that waits for a reset is reverted.
        return DisableMode() if device.is_mig_pending else Done()
    for instance in device.instances:
        return Destroy(instance.gpu_instance, instance.profile)
    return DisableMode() if device.is_mig_pending is not False else _reset_needed(device, "off")


def _to_instances(device: "DriverDevice", profile: str) -> Step:
    if not device.is_mig_capable:
        text = f"{device.product} does not support MIG: take it out of the pool, or change the pool's mode"
        return Blocked(BlockReason.NOT_SUPPORTED, text)
    known = [item for item in device.profiles if item.name == profile and item.capacity > 0]
    # A driver that lists no profile at all while MIG is off may list them once it is on.
    if not known and (device.profiles or device.is_mig_enabled):
        names = listed(item.name for item in device.profiles) or "none"
        return Blocked(
            BlockReason.NO_SUCH_PROFILE,
            f"{device.product} has no profile {profile}; it has {names}",
        )
    if not device.is_mig_enabled:
        return _reset_needed(device, "on") if device.is_mig_pending else EnableMode()
    if device.is_mig_pending is False:
        return EnableMode()
    return _partition(device.instances, profile, capacity=known[0].capacity)


def _partition(instances: "tuple[DriverInstance, ...]", profile: str, *, capacity: int) -> Step:
    """Other profiles go first, since they take the room; an incomplete instance comes before new ones."""
    for instance in instances:
        if instance.profile != profile:
            return Destroy(instance.gpu_instance, instance.profile)
    for instance in instances:
        if not instance.uuid:
            return Complete(instance.gpu_instance, instance.profile)
    return Create(profile) if len(instances) < capacity else Done()


def _reset_needed(device: "DriverDevice", mode: str) -> Blocked:
    text = (
        f"MIG is {mode} only after a reset of the device: nvidia-smi --gpu-reset -i {device.uuid},"
        " or reboot the node"
    )
    return Blocked(BlockReason.RESET_NEEDED, text)


def _obstacle(
    device: "DriverDevice", health: "DeviceHealthState", in_use: "Collection[str] | None"
) -> Blocked | None:
    if not health.is_healthy:
        return Blocked(BlockReason.UNHEALTHY, f"it is not healthy ({health.reason}): {health.text}")
    if in_use is None:
        return Blocked(BlockReason.USE_UNKNOWN, "its users are not known yet")
    own = {device.uuid, *(instance.uuid for instance in device.instances)} - {""}
    used = own & {part_of(unit) for unit in in_use}
    if used:
        return Blocked(
            BlockReason.IN_USE, f"pods of this node use {listed(used)}: they must end first"
        )
    if device.processes:
        return Blocked(
            BlockReason.RUNNING, "processes run on it (nvidia-smi shows which): they must end first"
        )
    return None

"""Planner of a device's layout: the next step, as a function of the present state.

No state is kept between steps: each is planned from a fresh snapshot, so that a crash after any of them, or in
the middle of one (a GPU instance without its compute instance), continues from there. An instance that the layout
has is destroyed only where it lies in the way of another one, and a finished layout needs no step.

A device is changed only while it is unused: no process runs on it, and no live pod is assigned or was allocated
the device or one of its instances. Between that check and the step, which may wait some seconds for its turn
with the driver, a pod may still be admitted. Two others prevent harm: the control plane keeps a pool in
maintenance until no unit of it is in use, and allocates nothing meanwhile (docs/design/0005); and NVML refuses to
destroy an instance, or to switch the mode of a device, that is in use (NVML_ERROR_IN_USE). mig-manager does not
check (gpu-operator#262); where it runs too, it must be configured to leave these nodes alone.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.mig.layout import (
    instances_of,
    layout_text,
    nearest_layout,
    placements_of,
    plan_layout,
)
from api.text import listed
from api.units import part_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agent.driver.port import DriverDevice, DriverInstance
    from agent.health.states import DeviceHealthState
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.mig.layout import Capacities, InstancePlacement, Shares


@final
@dataclass(frozen=True, slots=True)
class DesiredLayout:
    """Layout of a device: whole, or with instances of its pool's profiles."""

    shares: "Shares" = ()
    """Empty for a whole device, with MIG off."""

    def __str__(self) -> str:
        return f"instances of {layout_text(self.shares)}" if self.shares else "whole"


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
    return DesiredLayout(allocation.shares)


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
    """Destroy an instance that the layout does not have, or has elsewhere, or one of a device that is to be whole."""

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
    place: "InstancePlacement | None" = None
    """None where the driver chooses: in a layout of one profile, and on a product whose places are not known."""


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
    def is_transient(self) -> bool:
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
    desired: DesiredLayout,
    *,
    health: "DeviceHealthState",
    in_use: "Collection[str] | None",
) -> Step:
    """Return the next step towards the desired layout.

    Args:
        device: from a fresh snapshot.
        desired: the desired layout.
        health: of the device.
        in_use: units and UUIDs of devices and MIG instances that live pods of this node are assigned or were
            allocated; None while that is unknown.
    """
    if device.is_lost:
        return Blocked(BlockReason.LOST, "the driver no longer reaches it")
    step = (
        _to_instances(device, desired.shares) if desired.shares else _step_to_whole_device(device)
    )
    if isinstance(step, Done | Blocked):
        return step
    return _obstacle(device, health, in_use) or step


def _step_to_whole_device(device: "DriverDevice") -> Step:
    if not device.is_mig_enabled:
        # A mode change that waits for a reset is reverted.
        return DisableMode() if device.is_mig_pending else Done()
    for instance in device.instances:
        return Destroy(instance.gpu_instance, instance.profile)
    return DisableMode() if device.is_mig_pending is not False else _reset_needed(device, "off")


def _to_instances(device: "DriverDevice", shares: "Shares") -> Step:
    if not device.is_mig_capable:
        text = f"{device.product} does not support MIG: take it out of the pool, or change the pool's mode"
        return Blocked(BlockReason.NOT_SUPPORTED, text)
    capacities = tuple((item.name, item.capacity) for item in device.profiles if item.capacity > 0)
    counts = instances_of(shares, capacities)
    # A driver that lists no profile at all while MIG is off may list them once it is on.
    if counts is None and (device.profiles or device.is_mig_enabled):
        return Blocked(BlockReason.NO_SUCH_PROFILE, _cannot_hold(device, shares, capacities))
    if not device.is_mig_enabled:
        return _reset_needed(device, "on") if device.is_mig_pending else EnableMode()
    if device.is_mig_pending is False or counts is None:
        return EnableMode()
    profiles = (profile for profile, _ in shares)
    missing = Counter(dict(zip(profiles, counts, strict=True)))
    return _partition(device.instances, missing) or _create(
        device.instances, missing, shares=shares, capacities=capacities
    )


def _cannot_hold(device: "DriverDevice", shares: "Shares", capacities: "Capacities") -> str:
    capacity_by_profile = dict(capacities)
    lacking = [profile for profile, _ in shares if profile not in capacity_by_profile]
    if lacking:
        return f"{device.product} has no profile {listed(lacking)}; it has {listed(capacity_by_profile) or 'none'}"
    nearest = nearest_layout(shares, capacities)
    return f"{device.product} cannot hold {layout_text(shares)}; the nearest layout that it can hold is {nearest}"


def _partition(
    instances: "tuple[DriverInstance, ...]", missing: "Counter[str]"
) -> Destroy | Complete | None:
    """Return the step for the instances that there are, and take those that stay from the missing ones.

    Others go first, since they use the space; an incomplete instance comes before new ones.
    """
    for instance in instances:
        if not missing[instance.profile]:
            return Destroy(instance.gpu_instance, instance.profile)
        missing[instance.profile] -= 1
    for instance in instances:
        if not instance.uuid:
            return Complete(instance.gpu_instance, instance.profile)
    return None


def _create(
    instances: "tuple[DriverInstance, ...]",
    missing: "Counter[str]",
    *,
    shares: "Shares",
    capacities: "Capacities",
) -> Create | Destroy | Done:
    """Return the step for the missing instances; one that lies in their way is destroyed."""
    first = next((profile for profile, count in missing.items() if count), None)
    if first is None:
        return Done()
    present = [
        place
        for item in instances
        for place in placements_of(item.profile, capacities)
        if place.start == item.start
    ]
    are_known = len(present) == len(instances) and placements_of(first, capacities)
    if len(shares) == 1 or not are_known:
        return Create(first)
    planned = plan_layout(shares, capacities, present)
    if planned is None:
        return Destroy(instances[-1].gpu_instance, instances[-1].profile)
    return Create(planned[0].profile, planned[0])


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

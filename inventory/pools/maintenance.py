"""How a pool changes the way in which its cards are units: the maintenance, as a function of what is.

A pool is in maintenance while its spec wants another allocation than the one that is recorded. It gives out
nothing then; running pods finish or are evicted; once no unit is reserved or in use, one write makes the
wanted allocation the present one. Nothing else is remembered, so that a restart at any step goes on, and
going back is the same comparison. Design: docs/design/0005-from-slot-to-pool.md.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import AllocationMode, MaintenancePolicy
from api.quantity import parse_duration_s
from api.text import listed, units

if TYPE_CHECKING:
    import datetime as dt

    from api.kinds.gpupool import EffectiveAllocation, GPUPool
    from api.names import PodUid

MAX_NAMED: Final = 5
"""Pods that a condition names; how many more there are is a number."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Occupant:
    """A pod that is bound and has units of the pool."""

    namespace: str
    name: str
    uid: "PodUid"
    units: int

    @property
    def ref(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What keeps a pool from being empty, and how far its cards are cut."""

    pods: tuple[Occupant, ...] = ()
    reserved: int = 0
    """Units of bindings that are on their way; holds of waiting pods are given up beforehand."""
    devices: int = 0
    """Cards of the pool whose UUID is known, without faulted ones."""
    cut_devices: int = 0
    """Those of them that have a unit in the recorded allocation."""

    @property
    def is_empty(self) -> bool:
        """Say whether nothing of the pool is reserved or in use."""
        return not self.pods and not self.reserved


class MaintenanceStep(Enum):
    """What is to be done for a pool's allocation."""

    RECORD = "record"
    """The pool is new: how its cards are units is written down before anything is given out."""
    NOTHING = "nothing"
    """The pool is as its spec wants it."""
    WAIT = "wait"
    """Pods finish by themselves, or bindings on their way are settled."""
    EVICT = "evict"
    SWITCH = "switch"
    """The pool is empty: the wanted allocation becomes the present one."""
    REBUILD = "rebuild"
    """The new allocation is recorded, and the nodes are still cutting the cards."""
    BLOCKED = "blocked"
    """The wanted allocation is one that the pool cannot have: nothing is evicted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """What to do now, and what to say about it."""

    step: MaintenanceStep
    text: str
    pods: tuple[Occupant, ...] = ()
    """The pods that are in the way."""
    is_overdue: bool = False
    """The deadline of the maintenance is over."""


def plan_allocation(
    pool: "GPUPool",
    usage: Usage,
    *,
    since: "dt.datetime | None",
    now: "dt.datetime",
    objection: str = "",
) -> MaintenancePlan:
    """Return what the pool's allocation needs now.

    Args:
        pool: as the API server has it.
        usage: what the books say of it.
        since: when the maintenance began, by the condition's transition time; None before it says so.
        now: the wall clock.
        objection: why the pool is not sound (`inventory.pools.validation`), where it is not.
    """
    if pool.status.allocation is None:
        return MaintenancePlan(
            step=MaintenanceStep.BLOCKED if objection else MaintenanceStep.RECORD,
            text=_up_to_date(pool),
        )
    if not pool.is_in_maintenance:
        if since is not None and _is_being_cut(pool, usage):
            return MaintenancePlan(step=MaintenanceStep.REBUILD, text=_cutting(pool, usage))
        return MaintenancePlan(step=MaintenanceStep.NOTHING, text=_up_to_date(pool))
    change = change_text(pool)
    if objection:
        text = f"{change}, which cannot be: {objection}"
        return MaintenancePlan(step=MaintenanceStep.BLOCKED, text=text, pods=usage.pods)
    if usage.is_empty:
        return MaintenancePlan(step=MaintenanceStep.SWITCH, text=f"{change}: no unit is in use")
    return _emptying(pool, usage, change, since=since, now=now)


def allocation_text(allocation: "EffectiveAllocation") -> str:
    """Return an allocation in words, such as `TimeSlice (4 slices a card)`."""
    match allocation.mode:
        case AllocationMode.EXCLUSIVE:
            return "Exclusive"
        case AllocationMode.MIG:
            return f"MIG ({allocation.mig_profile})"
        case AllocationMode.TIME_SLICE:  # pragma: no branch  # mypy proves that none is missing
            return f"TimeSlice ({allocation.slices_per_device} slices a card)"


def change_text(pool: "GPUPool") -> str:
    """Say from what to what a pool in maintenance changes."""
    before, after = allocation_text(pool.allocation), allocation_text(pool.wanted_allocation)
    return f"changes from {before} to {after}"


def pods_text(pods: "tuple[Occupant, ...]") -> str:
    """Return how many pods there are with how many units, and the names of the first."""
    count = f"{len(pods)} pod" if len(pods) == 1 else f"{len(pods)} pods"
    held = units(sum(pod.units for pod in pods))
    return f"{count} with {held} ({listed((pod.ref for pod in pods), MAX_NAMED)})"


def _emptying(
    pool: "GPUPool",
    usage: Usage,
    change: str,
    *,
    since: "dt.datetime | None",
    now: "dt.datetime",
) -> MaintenancePlan:
    policy = pool.spec.maintenance
    in_the_way = [pods_text(usage.pods)] if usage.pods else []
    if usage.reserved:
        in_the_way.append(f"{units(usage.reserved)} of bindings on their way")
    evicts = policy.policy is MaintenancePolicy.EVICT and bool(usage.pods)
    doing = "evicts" if evicts else "waits for"
    text = f"{change}: {doing} {' and '.join(in_the_way)}"
    is_overdue = since is not None and (now - since).total_seconds() >= parse_duration_s(
        policy.deadline
    )
    if is_overdue:
        text += (
            f"; the deadline of {policy.deadline} is over: end these pods, or set spec.allocation back to"
            f" {allocation_text(pool.allocation)}"
        )
    step = MaintenanceStep.EVICT if evicts else MaintenanceStep.WAIT
    return MaintenancePlan(step=step, text=text, pods=usage.pods, is_overdue=is_overdue)


def _is_being_cut(pool: "GPUPool", usage: Usage) -> bool:
    return pool.allocation.mode is AllocationMode.MIG and usage.cut_devices < usage.devices


def _up_to_date(pool: "GPUPool") -> str:
    return f"cards are given out as the spec says: {allocation_text(pool.allocation)}"


def _cutting(pool: "GPUPool", usage: Usage) -> str:
    profile = pool.allocation.mig_profile
    return f"{usage.cut_devices} of {usage.devices} cards have instances of {profile}"

"""Maintenance of a pool: the change of its allocation, as a function of the present state.

A pool is in maintenance while its spec wants another allocation than the recorded one, and while others partition
its devices (`inventory.pools.drift`), which an operator ends. It allocates nothing
then; running pods finish or are evicted. Once no unit is reserved or in use, one write records the wanted
allocation. Nothing else is stored, so that a restart at any step continues, and reverting the spec is the
same comparison. Design: docs/design/0005-from-slot-to-pool.md.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import AllocationMode, MaintenancePolicy
from api.mig.layout import layout_text
from api.quantity import parse_duration_s
from api.text import listed, units
from inventory.pools.drift import drift_text, is_confirmed

if TYPE_CHECKING:
    import datetime as dt

    from api.kinds.gpupool import EffectiveAllocation, GPUPool
    from api.names import PodUid

MAX_NAMED: Final = 5
"""Pods that a condition names; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PodUsage:
    """A bound pod with units of the pool."""

    namespace: str
    name: str
    uid: "PodUid"
    units: int

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    """Units of a pool in use, and how many of its devices are partitioned."""

    pods: tuple[PodUsage, ...] = ()
    reserved: int = 0
    """Units of bindings in progress; reservations of waiting pods are released beforehand."""
    devices: int = 0
    """Devices of the pool with a UUID, without faulted ones."""
    partitioned_devices: int = 0
    """Those of them with a unit in the recorded allocation."""

    @property
    def is_empty(self) -> bool:
        """Whether no unit of the pool is reserved or in use."""
        return not self.pods and not self.reserved


class MaintenanceStep(Enum):
    """The next step for a pool's allocation."""

    RECORD = "record"
    """The pool is new: its allocation is recorded before anything is allocated."""
    NOTHING = "nothing"
    """The recorded allocation is that of the spec."""
    WAIT = "wait"
    """Pods finish by themselves, and bindings in progress complete."""
    EVICT = "evict"
    SWITCH = "switch"
    """The pool is empty: the desired allocation is recorded."""
    REBUILD = "rebuild"
    """The new allocation is recorded, and the nodes are still partitioning the devices."""
    DRIFT = "drift"
    """Others partition its devices: an operator ends that, and confirms it."""
    BLOCKED = "blocked"
    """The desired allocation is invalid for the pool: nothing is evicted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """The next step, and its text for the condition."""

    step: MaintenanceStep
    text: str
    pods: tuple[PodUsage, ...] = ()
    """The pods that keep the pool from being empty."""
    is_overdue: bool = False
    """Whether the deadline of the maintenance has passed."""


def plan_allocation(
    pool: "GPUPool",
    usage: PoolUsage,
    *,
    since: "dt.datetime | None",
    now: "dt.datetime",
    fault: str = "",
    drift: str = "",
) -> MaintenancePlan:
    """Return the next step for the pool's allocation.

    Args:
        pool: as the API server has it.
        usage: from the allocation state.
        since: start of the maintenance, by the condition's transition time; None before the condition says so.
        now: the wall clock.
        fault: the fault of an invalid pool (`inventory.pools.validation`); empty for a valid one.
        drift: why an operator has to see to its devices' layouts (`LayoutHistory`); empty where nobody has.
    """
    if pool.status.allocation is None:
        return MaintenancePlan(
            step=MaintenanceStep.BLOCKED if fault else MaintenanceStep.RECORD,
            text=_up_to_date(pool),
        )
    if not pool.is_changing:
        if (drift or pool.drift is not None) and not is_confirmed(pool):
            return MaintenancePlan(step=MaintenanceStep.DRIFT, text=drift_text(pool, drift))
        if pool.drift is None and since is not None and _is_being_partitioned(usage):
            text = _partitioning_text(pool, usage)
            return MaintenancePlan(step=MaintenanceStep.REBUILD, text=text)
        return MaintenancePlan(step=MaintenanceStep.NOTHING, text=_up_to_date(pool))
    change = change_text(pool)
    if fault:
        text = f"{change}, which is invalid: {fault}"
        return MaintenancePlan(step=MaintenanceStep.BLOCKED, text=text, pods=usage.pods)
    if usage.is_empty:
        return MaintenancePlan(step=MaintenanceStep.SWITCH, text=f"{change}: no unit is in use")
    return _emptying(pool, usage, change, since=since, now=now)


def allocation_text(allocation: "EffectiveAllocation") -> str:
    """Return the text of an allocation, such as `TimeSlice (4 slices per device)`."""
    match allocation.mode:
        case AllocationMode.EXCLUSIVE:
            return "Exclusive"
        case AllocationMode.MIG:
            return f"MIG ({layout_text(allocation.shares)})"
        case AllocationMode.TIME_SLICE:  # pragma: no branch  # mypy proves that none is missing
            return f"TimeSlice ({allocation.slices_per_device} slices per device)"


def maintenance_text(pool: "GPUPool") -> str:
    """Return what a pool in maintenance waits for."""
    if not pool.is_changing and pool.drift is not None:
        return pool.drift.message
    return f"{change_text(pool)} once no unit is in use"


def change_text(pool: "GPUPool") -> str:
    """Return the text of the change that a pool makes."""
    before, after = allocation_text(pool.allocation), allocation_text(pool.desired_allocation)
    return f"changes from {before} to {after}"


def pods_text(pods: "tuple[PodUsage, ...]") -> str:
    """Return the number of pods and units, and the names of the first pods."""
    count = f"{len(pods)} pod" if len(pods) == 1 else f"{len(pods)} pods"
    total = units(sum(pod.units for pod in pods))
    return f"{count} with {total} ({listed((pod.ref for pod in pods), MAX_NAMED)})"


def _emptying(
    pool: "GPUPool",
    usage: PoolUsage,
    change: str,
    *,
    since: "dt.datetime | None",
    now: "dt.datetime",
) -> MaintenancePlan:
    policy = pool.spec.maintenance
    in_the_way = [pods_text(usage.pods)] if usage.pods else []
    if usage.reserved:
        in_the_way.append(f"{units(usage.reserved)} of bindings in progress")
    evicts = policy.policy is MaintenancePolicy.EVICT and bool(usage.pods)
    doing = "evicts" if evicts else "waits for"
    text = f"{change}: {doing} {' and '.join(in_the_way)}"
    is_overdue = since is not None and (now - since).total_seconds() >= parse_duration_s(
        policy.deadline
    )
    if is_overdue:
        text += (
            f"; the deadline of {policy.deadline} has passed: delete these pods, or set spec.allocation back to"
            f" {allocation_text(pool.allocation)}"
        )
    step = MaintenanceStep.EVICT if evicts else MaintenanceStep.WAIT
    return MaintenancePlan(step=step, text=text, pods=usage.pods, is_overdue=is_overdue)


def _is_being_partitioned(usage: PoolUsage) -> bool:
    return usage.partitioned_devices < usage.devices


def _up_to_date(pool: "GPUPool") -> str:
    return f"the recorded allocation is that of the spec: {allocation_text(pool.allocation)}"


def _partitioning_text(pool: "GPUPool", usage: PoolUsage) -> str:
    shares = pool.allocation.shares
    units_now = f"have instances of {layout_text(shares)}" if shares else "are whole"
    return f"{usage.partitioned_devices} of {usage.devices} devices {units_now}"

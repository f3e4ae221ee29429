"""Phase and conditions of a pool, from its figures and its validity. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import GPUPoolStatus, PoolCapacity, PoolPhase
from api.status_conditions import is_condition_true, new_condition
from api.text import listed
from inventory.pools.maintenance import maintenance_text, pods_text
from inventory.pools.validation import VALID_POOL, PoolFaultReason
from telemetry.conditions import (
    PoolCapacityLow,
    PoolCondition,
    PoolMisconfigured,
    PoolReady,
    PoolSupported,
)

if TYPE_CHECKING:
    import datetime as dt
    from enum import Enum

    from api.kinds.gpupool import GPUPool
    from api.meta import Condition
    from api.names import DeviceName
    from inventory.pools.maintenance import PodUsage
    from inventory.pools.validation import PoolValidity

OURS: Final = (
    PoolCondition.READY,
    PoolCondition.SUPPORTED,
    PoolCondition.MISCONFIGURED,
    PoolCondition.CAPACITY_LOW,
)
"""Conditions that `pool.status` writes; the others have writers of their own."""

LOW_TENTHS: Final = 1
"""Less than a tenth free is low …"""
ENOUGH_TENTHS: Final = 2
"""… and more than a fifth is enough again, so that one pod more or less does not toggle the condition."""

_MISCONFIGURED: Final = {
    PoolFaultReason.BAD_SPEC: PoolMisconfigured.BAD_SPEC,
    PoolFaultReason.RESOURCE_NAME_TAKEN: PoolMisconfigured.RESOURCE_NAME_TAKEN,
    PoolFaultReason.PROFILE_NOT_SUPPORTED: PoolMisconfigured.PROFILE_NOT_SUPPORTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """Capacity and validity of a pool."""

    capacity: PoolCapacity
    nodes: int
    waiting: int = 0
    """Pods that wait for units of the pool."""
    differing: "tuple[DeviceName, ...]" = ()
    """Devices that are withheld, since their MIG instances are not those of the allocation."""
    validity: "PoolValidity" = VALID_POOL
    occupants: "tuple[PodUsage, ...]" = ()
    """Pods with units of the pool; only of a pool that is being deleted."""


def status_of(
    pool: "GPUPool", current: GPUPoolStatus, figures: PoolFigures, *, now: "dt.datetime"
) -> GPUPoolStatus:
    """Return our part of the status that the pool should show, given what it shows."""
    phase, reason, message = _readiness(pool, figures)

    def make(type_: PoolCondition, reason: "Enum", text: str, *, is_true: bool) -> "Condition":
        return new_condition(
            type_,
            reason,
            text,
            status=is_true,
            current=current.conditions,
            generation=pool.metadata.generation,
            now=now,
        )

    low, low_reason, low_text = _scarcity(pool, current, figures.capacity)
    supported, misconfigured = _support(figures.validity), _configuration(pool, figures.validity)
    return GPUPoolStatus(
        observed_generation=pool.metadata.generation,
        phase=phase.value,
        capacity=figures.capacity,
        nodes=figures.nodes,
        waiting=figures.waiting,
        resource_name=", ".join(pool.resources),
        strategy=pool.strategy,
        conditions=[
            make(PoolCondition.READY, reason, message, is_true=reason is PoolReady.SERVING),
            make(
                PoolCondition.SUPPORTED,
                *supported,
                is_true=supported[0] is PoolSupported.SUPPORTED,
            ),
            make(
                PoolCondition.MISCONFIGURED,
                *misconfigured,
                is_true=misconfigured[0] is not PoolMisconfigured.VALID,
            ),
            make(PoolCondition.CAPACITY_LOW, low_reason, low_text, is_true=low),
        ],
    )


def _readiness(pool: "GPUPool", figures: PoolFigures) -> tuple[PoolPhase, PoolReady, str]:
    capacity, validity, missing = figures.capacity, figures.validity, _missing_text(figures)
    if pool.metadata.deletion_timestamp is not None:
        text = "being deleted"
        if figures.occupants:
            text = f"being deleted; waiting for {pods_text(figures.occupants)}"
        return PoolPhase.TERMINATING, PoolReady.TERMINATING, text
    if validity.unsupported is not None:
        return PoolPhase.MISCONFIGURED, PoolReady.UNSUPPORTED, validity.text
    if validity.misconfigured:
        return PoolPhase.MISCONFIGURED, PoolReady.MISCONFIGURED, validity.text
    if pool.is_in_maintenance:
        text = f"accepts no new pods: {maintenance_text(pool)}"
        return PoolPhase.MAINTENANCE, PoolReady.IN_MAINTENANCE, text
    if capacity.total == 0:
        text = "no device is assigned to the pool, or none has reported its UUID yet"
        if pool.scales:
            text = "no node is there: one is added for the first pod that waits"
        return PoolPhase.PENDING, PoolReady.NO_DEVICES, text + missing
    if capacity.unhealthy == capacity.total:
        text = "every device is faulty or draining, or its node is missing, not ready or cordoned"
        if pool.scales:
            text += ", has just been added, or is about to go"
        return PoolPhase.DEGRADED, PoolReady.NO_HEALTHY_DEVICES, text + missing
    counted, on = _counted(capacity.total, "unit"), _counted(figures.nodes, "node")
    text = f"{counted} of {listed(pool.resources)} on {on}"
    return PoolPhase.READY, PoolReady.SERVING, text + missing


def _support(validity: "PoolValidity") -> tuple[PoolSupported, str]:
    if validity.unsupported is not None:
        return PoolSupported.UNSUPPORTED_VENDOR, validity.unsupported.text
    return PoolSupported.SUPPORTED, "the pool's devices are supported"


def _configuration(pool: "GPUPool", validity: "PoolValidity") -> tuple[PoolMisconfigured, str]:
    if not validity.misconfigured and pool.drift is not None:
        return PoolMisconfigured.LAYOUT_DIFFERS, pool.drift.message
    if not validity.misconfigured:
        return PoolMisconfigured.VALID, "the configuration is valid"
    text = "; ".join(fault.text for fault in validity.misconfigured)
    return _MISCONFIGURED[validity.misconfigured[0].reason], text


def _scarcity(
    pool: "GPUPool", current: GPUPoolStatus, capacity: PoolCapacity
) -> tuple[bool, PoolCapacityLow, str]:
    """Say whether few units are free; a pool that allocates nothing, or scales, has no low capacity."""
    healthy = capacity.total - capacity.unhealthy
    if healthy == 0 or pool.is_in_maintenance or pool.metadata.deletion_timestamp is not None:
        return False, PoolCapacityLow.ENOUGH, "no units are allocated now"
    if pool.scales:
        # To be full is its ordinary state; status.autoscaling says where it cannot grow.
        return False, PoolCapacityLow.ENOUGH, "nodes are added for pods that wait"
    tenths = capacity.available * 10
    if capacity.available == 0:
        return True, PoolCapacityLow.EXHAUSTED, "no unit is free: pods have to wait"
    was_low = is_condition_true(current.conditions, PoolCondition.CAPACITY_LOW)
    if tenths < LOW_TENTHS * healthy or (was_low and tenths <= ENOUGH_TENTHS * healthy):
        # Without the figures, which would be a write for every pod: they are in status.capacity.
        text = "less than a tenth of the units is free, or not more than a fifth since"
        return True, PoolCapacityLow.LOW, text
    return False, PoolCapacityLow.ENOUGH, "units are free"


def _missing_text(figures: PoolFigures) -> str:
    """Return how many units are missing, and on which devices; empty where none differs."""
    if not figures.differing:
        return ""
    missing = _counted(figures.capacity.missing, "unit")
    devices = _counted(len(figures.differing), "device")
    names = listed(sorted(figures.differing))
    return (
        f"; {missing} missing: the MIG instances of {devices} differ from the allocation ({names})"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

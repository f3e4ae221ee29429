"""Status fields and conditions of `node.inventory`, and their comparison with the current ones. Pure."""

import datetime as dt
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.kinds.gpunodeinventory import DeviceCounts, GPUNodeInventoryStatus
from api.status_conditions import format_time, is_condition_true, new_condition
from api.text import listed
from inventory.discovery.node import system_of, versions_of
from inventory.discovery.plan import device_shows, own_status
from telemetry.conditions import (
    DeviceCondition,
    DeviceStale,
    InventoryCondition,
    InventoryIncomplete,
    InventoryManaged,
    ReadyForPooling,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.kinds.gpudevice import GPUDevice
    from api.meta import Condition, ObjectMeta
    from inventory.discovery.merge import MergedReport
    from inventory.discovery.node import IncompleteInventory
    from inventory.discovery.plan import DesiredDevice, DevicePlan


def device_body(
    desired: "DesiredDevice",
    metadata: "ObjectMeta",
    *,
    current: "Sequence[Condition] | None" = None,
    now: dt.datetime,
) -> dict[str, object]:
    """Return our part of a device's status, given the conditions that it shows."""
    return dict(own_status(desired, [_stale(desired, metadata, current=current, now=now)]))


def shows_device(device: "GPUDevice", desired: "DesiredDevice", now: dt.datetime) -> bool:
    """Say whether the device shows the desired status."""
    current = device.status.conditions or ()
    stale = _stale(desired, device.metadata, current=current, now=now)
    return device_shows(device.status, desired.status) and stale in current


def newly_stale(plan: "DevicePlan") -> "list[DesiredDevice]":
    """Return the devices of which a source went silent since the last write.

    A node that opts out has no node agent, so silence about its devices is as asked for.
    """
    return [
        desired
        for device, desired in plan.keep
        if desired.staleness.is_stale and desired.status.managed and not is_stale(device)
    ]


def is_stale(device: "GPUDevice") -> bool:
    """Say whether the device shows that a source of its facts went silent."""
    return is_condition_true(device.status.conditions, DeviceCondition.STALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletenessFacts:
    """Findings about a node as a whole."""

    names: "Sequence[str]"
    """Names of its devices."""
    faulted: int
    """How many of them report a fault."""
    managed: bool
    managed_label: str
    """The label that decides it."""
    kernel: str
    """Kernel as named by its kubelet; empty where it does not say."""
    incomplete: "IncompleteInventory | None"
    passed_through: "Sequence[str]" = ()
    """Devices that are bound to a VFIO driver."""


def inventory_status(
    completeness_facts: CompletenessFacts,
    merged: "MergedReport",
    current: GPUNodeInventoryStatus,
    *,
    generation: int,
    now: dt.datetime,
) -> GPUNodeInventoryStatus:
    """Return our part of the status that a node's inventory should show, given what it shows."""
    heartbeat, incomplete = merged.heartbeat, completeness_facts.incomplete
    dated = functools.partial(
        new_condition, current=current.conditions, generation=generation, now=now
    )
    opted_out = (
        f"label {completeness_facts.managed_label} of the node keeps its devices out of every pool"
    )
    # The API server keeps the order in which conditions were first written: the most important one comes first,
    # and readiness, which writes it, has not seen the object yet.
    unjudged = dated(
        InventoryCondition.READY_FOR_POOLING,
        ReadyForPooling.VALIDATING,
        "not judged yet",
        status="Unknown",
    )
    return GPUNodeInventoryStatus(
        devices=sorted(completeness_facts.names),
        device_counts=DeviceCounts(
            total=len(completeness_facts.names), faulted=completeness_facts.faulted
        ),
        driver=versions_of(merged, current.driver),
        system=system_of(merged, current.system, kernel=completeness_facts.kernel),
        kubelet=merged.kubelet,
        managed=completeness_facts.managed,
        last_heartbeat=current.last_heartbeat if heartbeat is None else format_time(heartbeat),
        conditions=[
            *(() if current.conditions else (unjudged,)),
            dated(
                InventoryCondition.MANAGED_DISABLED,
                InventoryManaged.MANAGED
                if completeness_facts.managed
                else InventoryManaged.DISABLED,
                "no label of the node opts out" if completeness_facts.managed else opted_out,
                status=not completeness_facts.managed,
                keeps_text=completeness_facts.managed,
            ),
            dated(
                InventoryCondition.INVENTORY_INCOMPLETE,
                *_completeness(completeness_facts),
                status=incomplete is not None,
                keeps_text=incomplete is None and not completeness_facts.passed_through,
            ),
        ],
    )


def _completeness(completeness_facts: CompletenessFacts) -> tuple[InventoryIncomplete, str]:
    """Return reason and text of the condition InventoryIncomplete."""
    if completeness_facts.incomplete is not None:
        return InventoryIncomplete[
            completeness_facts.incomplete.reason.name
        ], completeness_facts.incomplete.message
    if not completeness_facts.passed_through:
        return InventoryIncomplete.COMPLETE, "every device is reported completely"
    text = (
        f"{listed(completeness_facts.passed_through)} is bound to a VFIO driver, for virtual machines, and joins no pool;"
        " every other device is reported completely"
    )
    return InventoryIncomplete.PASSED_THROUGH, text


def shows_inventory(
    current: GPUNodeInventoryStatus, desired: GPUNodeInventoryStatus, merged: "MergedReport"
) -> bool:
    """Say whether the inventory shows the desired status.

    A newer heartbeat alone is no difference until the source is silent: a quiet node must not cost a write a
    minute.
    """
    return (
        sorted(current.devices or ()) == (desired.devices or [])
        and _our_counts(current) == _our_counts(desired)
        and current.driver == desired.driver
        and current.system == desired.system
        and current.kubelet == desired.kubelet
        and current.managed is desired.managed
        and (not merged.is_silent or current.last_heartbeat == desired.last_heartbeat)
        and all(condition in (current.conditions or ()) for condition in desired.conditions or ())
    )


def inventory_body(desired: GPUNodeInventoryStatus) -> dict[str, object]:
    """Return our part of an inventory's status as it is applied."""
    body: dict[str, object] = {
        "devices": desired.devices,
        "deviceCounts": _our_counts(desired),
        "driver": desired.driver,
        "system": desired.system,
        "managed": desired.managed,
        "conditions": desired.conditions,
    }
    if desired.kubelet is not None:
        body["kubelet"] = desired.kubelet
    if desired.last_heartbeat is not None:
        body["lastHeartbeat"] = desired.last_heartbeat
    return body


def _our_counts(status: GPUNodeInventoryStatus) -> dict[str, int]:
    """Return the counts that this controller writes; assignment writes how many are in a pool."""
    return {"total": status.device_counts.total, "faulted": status.device_counts.faulted}


def _stale(
    desired: "DesiredDevice",
    metadata: "ObjectMeta",
    *,
    current: "Sequence[Condition] | None",
    now: dt.datetime,
) -> "Condition":
    staleness = desired.staleness
    return new_condition(
        DeviceCondition.STALE,
        DeviceStale.SOURCE_SILENT if staleness.is_stale else DeviceStale.FRESH,
        staleness.message or "the sources of its facts report",
        status=staleness.is_stale,
        keeps_text=not staleness.is_stale,
        current=current,
        generation=metadata.generation,
        now=now,
    )

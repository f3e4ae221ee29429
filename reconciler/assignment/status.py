"""What a device and its node's inventory show of assignment, as a function of what was decided."""

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from api.kinds.gpudevice import PoolRef
from api.kinds.gpunodeinventory import PoolDevices, PoolMembership
from api.meta import Condition
from api.text import MAX_MESSAGE_LENGTH, truncate
from inventory.assignment.decide import Action
from telemetry.conditions import DeviceAssigned, DeviceCondition

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from api.kinds.gpudevice import GPUDevice
    from inventory.assignment.decide import Decision

_OURS: Final = (DeviceCondition.ASSIGNED.value, DeviceCondition.DRAINING.value)


def membership_of(decisions: "Iterable[Decision]") -> PoolMembership:
    """Return which devices of a node are in pools, and which wait to come into one.

    Empty lists are written out: without any, the API server makes null of what an apply leaves behind, and
    refuses that.
    """
    pending: dict[str, list[str]] = {}
    assigned: dict[str, list[str]] = {}
    for one in decisions:
        if one.owner is not None:
            assigned.setdefault(one.owner, []).append(one.device)
        if one.meant_for is not None and one.meant_for != one.owner:
            pending.setdefault(one.meant_for, []).append(one.device)
    return PoolMembership(pending=_by_pool(pending), assigned=_by_pool(assigned))


def _by_pool(devices: dict[str, list[str]]) -> list[PoolDevices]:
    return [PoolDevices(pool=pool, devices=sorted(devices[pool])) for pool in sorted(devices)]


def carried_out(device: "GPUDevice", decision: "Decision", now: "dt.datetime") -> "GPUDevice":
    """Return the device once the decision is carried out.

    A release leaves the conditions as they are: they follow when the watch has shown it.
    """
    conditions = [one for one in device.status.conditions or () if one.type not in _OURS]
    if decision.action is Action.RELEASE:
        conditions = list(device.status.conditions or ())
    else:
        is_assigned = decision.action in {Action.CLAIM, Action.KEEP}
        conditions.append(
            _condition(
                device,
                DeviceCondition.ASSIGNED,
                decision,
                status="True" if is_assigned else "False",
                now=now,
            )
        )
        if decision.action is Action.DRAIN:
            conditions.append(
                _condition(device, DeviceCondition.DRAINING, decision, status="True", now=now)
            )
    return msgspec.structs.replace(
        device,
        status=msgspec.structs.replace(
            device.status,
            pool_ref=PoolRef(name=decision.owner) if decision.owner is not None else None,
            conditions=conditions,
        ),
    )


def _condition(
    device: "GPUDevice",
    kind: DeviceCondition,
    decision: "Decision",
    *,
    status: Literal["True", "False"],
    now: "dt.datetime",
) -> Condition:
    shown = shown_condition(device, kind)
    is_same = shown is not None and shown.status == status
    return Condition(
        type=kind.value,
        status=status,
        reason=DeviceAssigned[decision.reason.name].value,
        message=text_of(decision),
        last_transition_time=shown.last_transition_time
        if shown is not None and is_same
        else now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        observed_generation=device.metadata.generation,
    )


def text_of(decision: "Decision") -> str:
    """Return the decision's message as conditions and events take it."""
    return truncate(decision.message, MAX_MESSAGE_LENGTH)


def shown_condition(device: "GPUDevice", kind: DeviceCondition) -> Condition | None:
    """Return the device's condition of a type."""
    return next((one for one in device.status.conditions or () if one.type == kind.value), None)


def our_part(device: "GPUDevice") -> "tuple[PoolRef | None, Sequence[Condition]]":
    """Return what of a device's status is this controller's, for comparing and for writing."""
    ours = [one for one in device.status.conditions or () if one.type in _OURS]
    return device.status.pool_ref, sorted(ours, key=lambda one: one.type)

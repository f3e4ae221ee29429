"""Status fields of assignment on devices and inventories, as functions of the decisions. Pure."""

from typing import TYPE_CHECKING, Final

import msgspec

from api.kinds.gpudevice import PoolRef
from api.kinds.gpunodeinventory import PoolDevices, PoolMembership
from api.status_conditions import find_condition, new_condition, without_conditions
from api.text import MAX_MESSAGE_LENGTH, truncate
from inventory.assignment.decide import Action
from telemetry.conditions import DeviceAssigned, DeviceCondition

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from api.kinds.gpudevice import GPUDevice
    from api.meta import Condition
    from api.status_conditions import ConditionStatus
    from inventory.assignment.decide import Decision

_OURS: Final = (DeviceCondition.ASSIGNED, DeviceCondition.DRAINING)


def membership_of(decisions: "Iterable[Decision]") -> PoolMembership:
    """Return the devices of a node by pool: assigned ones, ones pending assignment, and ones that wait for a decision.

    Empty lists are written too: without them the API server stores null after an apply, and rejects it.
    """
    candidates: dict[str, list[str]] = {}
    pending: dict[str, list[str]] = {}
    assigned: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.owner is not None:
            assigned.setdefault(decision.owner, []).append(decision.device)
        if decision.meant_for is not None and decision.meant_for != decision.owner:
            pending.setdefault(decision.meant_for, []).append(decision.device)
        for pool in decision.candidates:
            candidates.setdefault(pool, []).append(decision.device)
    return PoolMembership(
        candidates=_by_pool(candidates), pending=_by_pool(pending), assigned=_by_pool(assigned)
    )


def _by_pool(devices: dict[str, list[str]]) -> list[PoolDevices]:
    return [PoolDevices(pool=pool, devices=sorted(devices[pool])) for pool in sorted(devices)]


def carried_out(device: "GPUDevice", decision: "Decision", now: "dt.datetime") -> "GPUDevice":
    """Return the device as it is after the decision is carried out.

    A release leaves the conditions as they are: they follow once the watch shows it. A device that is held stays as it is.
    """
    if decision.action is Action.HOLD:
        return device
    conditions = without_conditions(device.status.conditions, _OURS)
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
    status: "ConditionStatus",
    now: "dt.datetime",
) -> "Condition":
    return new_condition(
        kind,
        DeviceAssigned[decision.reason.name],
        decision.message,
        status=status,
        current=device.status.conditions,
        generation=device.metadata.generation,
        now=now,
    )


def text_of(decision: "Decision") -> str:
    """Return the decision's message, truncated for conditions and Events."""
    return truncate(decision.message, MAX_MESSAGE_LENGTH)


def current_condition(device: "GPUDevice", kind: DeviceCondition) -> "Condition | None":
    return find_condition(device.status.conditions, kind)


def our_part(device: "GPUDevice") -> "tuple[PoolRef | None, Sequence[Condition]]":
    """Return the part of a device's status that this controller owns."""
    found = (find_condition(device.status.conditions, item) for item in _OURS)
    return device.status.pool_ref, [item for item in found if item is not None]

"""Readiness of a node's GPU software as conditions, and the state that a restart recalls from them.

Pure; `reconciler.readiness.controller` writes them.
"""

from typing import TYPE_CHECKING, Final

from api.kinds.gpunodeinventory import BootstrapPhase
from api.status_conditions import is_condition_true, new_condition
from inventory.debounce import DebounceCounter, DebouncedState
from inventory.readiness.phases import BootstrapState, CheckState
from inventory.readiness.software import Check
from telemetry.conditions import InventoryCondition, NodeSoftware, ReadyForPooling

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence
    from enum import Enum

    from api.kinds.gpunodeinventory import GPUNodeInventoryStatus
    from api.meta import Condition
    from api.status_conditions import ConditionStatus
    from inventory.readiness.phases import NodeReadiness

OURS: Final = (
    InventoryCondition.READY_FOR_POOLING.value,
    InventoryCondition.DEGRADED_WORKLOADS.value,
    InventoryCondition.INFRA_DEGRADED.value,
    InventoryCondition.DRIVER_MISSING.value,
    InventoryCondition.TOOLKIT_MISSING.value,
    InventoryCondition.GFD_READY.value,
    InventoryCondition.MONITORING_MISSING.value,
)
"""The most important first; `kubectl describe` shows them in this order."""
_OF_CHECKS: Final = (
    (Check.DRIVER, InventoryCondition.DRIVER_MISSING, "False"),
    (Check.TOOLKIT, InventoryCondition.TOOLKIT_MISSING, "False"),
    (Check.GFD, InventoryCondition.GFD_READY, "True"),
    (Check.MONITORING, InventoryCondition.MONITORING_MISSING, "False"),
)
"""With the status of the condition where the check is up."""
_PAST_VALIDATION: Final = frozenset(
    {BootstrapPhase.GFD, BootstrapPhase.MONITORING, BootstrapPhase.READY}
)
_FINE: Final = frozenset({NodeSoftware.READY, NodeSoftware.AS_EXPECTED})
"""Reasons whose message says nothing more."""
_UP: Final = CheckState(DebounceCounter(DebouncedState.UP))
_NOT_REQUIRED: Final = CheckState(DebounceCounter(DebouncedState.UP), is_required=False)


def conditions_of(
    readiness: "NodeReadiness",
    current: "Sequence[Condition]",
    *,
    generation: int,
    now: "dt.datetime",
) -> "list[Condition]":
    """Return the conditions of readiness that the inventory should show, given those that it shows."""
    return [
        new_condition(
            type_,
            reason,
            message,
            status=status,
            current=current,
            generation=generation,
            now=now,
            keeps_text=reason in _FINE,
        )
        for type_, status, reason, message in _fields_of(readiness)
    ]


def recalled(status: "GPUNodeInventoryStatus") -> BootstrapState:
    """Return the state by a status; a check without a condition is undecided."""
    current = {item.type: item for item in status.conditions or ()}
    states = {check: CheckState() for check in Check}
    for check, type_, up in _OF_CHECKS:
        condition = current.get(type_.value)
        if condition is not None:
            states[check] = _recalled_check(condition, up)
    if status.phase in _PAST_VALIDATION:
        states[Check.VALIDATOR] = _UP
    elif status.phase is BootstrapPhase.VALIDATING_FAILED and all(
        states[check].counter.state is DebouncedState.UP for check in (Check.DRIVER, Check.TOOLKIT)
    ):
        states[Check.VALIDATOR] = CheckState(DebounceCounter(DebouncedState.DOWN))
    was_ready = status.phase is BootstrapPhase.READY or is_condition_true(
        status.conditions, InventoryCondition.INFRA_DEGRADED
    )
    return BootstrapState(states, was_ready)


def _recalled_check(condition: "Condition", up: str) -> CheckState:
    if condition.status == up:
        return _UP
    if condition.reason == NodeSoftware.NOT_REQUIRED.value:
        return _NOT_REQUIRED
    if condition.reason == NodeSoftware.NOT_READY.value:
        return CheckState(DebounceCounter(DebouncedState.DOWN), condition.message)
    return CheckState()


_Fields = tuple["ConditionStatus | bool", "Enum", str]
"""Status, reason and message."""


def _fields_of(
    readiness: "NodeReadiness",
) -> "Iterator[tuple[InventoryCondition, ConditionStatus | bool, Enum, str]]":
    bootstrap = readiness.bootstrap
    obstacle = readiness.obstacle
    reason = ReadyForPooling.READY if obstacle is None else ReadyForPooling[obstacle.name]
    yield InventoryCondition.READY_FOR_POOLING, obstacle is None, reason, readiness.message
    down = ", ".join(check.value for check in bootstrap.down)
    yield (
        InventoryCondition.DEGRADED_WORKLOADS,
        *_flag_fields(
            f"pods use devices of the node; not ready: {down}",
            "no pod is affected",
            is_set=readiness.harms_workloads,
        ),
    )
    yield (
        InventoryCondition.INFRA_DEGRADED,
        *_flag_fields(
            f"the node was ready for pools and no longer is; not ready: {down}",
            "no component that was ready has failed",
            is_set=readiness.is_degraded,
        ),
    )
    for check, type_, up in _OF_CHECKS:
        yield type_, *_check_fields(bootstrap.states[check], up, is_managed=readiness.is_managed)


def _check_fields(state: CheckState, up: str, *, is_managed: bool) -> _Fields:
    if not is_managed:
        return "Unknown", NodeSoftware.NOT_MANAGED, "a label of the node opts out of management"
    match state.counter.state:
        case DebouncedState.UNDECIDED:
            return "Unknown", NodeSoftware.VALIDATING, "waiting for more observations that agree"
        case DebouncedState.DOWN:
            return up == "False", NodeSoftware.NOT_READY, state.text
        case DebouncedState.UP if not state.is_required:
            return "Unknown", NodeSoftware.NOT_REQUIRED, "not required, and not deployed"
        case DebouncedState.UP:
            return up == "True", NodeSoftware.READY, "ready"


def _flag_fields(message: str, otherwise: str, *, is_set: bool) -> _Fields:
    if is_set:
        return True, NodeSoftware.NOT_READY, message
    return False, NodeSoftware.AS_EXPECTED, otherwise

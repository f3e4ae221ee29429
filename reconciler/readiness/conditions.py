"""The verdict on a node's GPU software as conditions, and back: what they say is taken up after a restart.

Pure; `reconciler.readiness.controller` writes them.
"""

from typing import TYPE_CHECKING, Final, Literal

from api.kinds.gpunodeinventory import BootstrapPhase
from api.meta import Condition
from api.text import truncate
from inventory.debounce import DebouncedState, Track
from inventory.readiness.phases import BootstrapState, CheckState
from inventory.readiness.software import Check
from telemetry.conditions import InventoryCondition, NodeSoftware, ReadyForPooling

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator

    from api.kinds.gpunodeinventory import GPUNodeInventoryStatus
    from inventory.readiness.phases import ReadinessVerdict

OURS: Final = frozenset(
    {
        InventoryCondition.DRIVER_MISSING.value,
        InventoryCondition.TOOLKIT_MISSING.value,
        InventoryCondition.GFD_READY.value,
        InventoryCondition.MONITORING_MISSING.value,
        InventoryCondition.INFRA_DEGRADED.value,
        InventoryCondition.DEGRADED_WORKLOADS.value,
        InventoryCondition.READY_FOR_POOLING.value,
    }
)
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
_UP: Final = CheckState(Track(DebouncedState.UP))
_NOT_REQUIRED: Final = CheckState(Track(DebouncedState.UP), is_required=False)


def conditions_of(
    verdict: "ReadinessVerdict",
    shown: "Iterable[Condition]",
    *,
    generation: int,
    now: "dt.datetime",
) -> list[Condition]:
    """Return our conditions, given those that the inventory shows; times move with a status only."""
    since = {one.type: (one.status, one.last_transition_time) for one in shown}
    conditions = []
    for type_, status, reason, message in _said(verdict):
        before, at = since.get(type_, ("", ""))
        conditions.append(
            Condition(
                type=type_,
                status=status,
                reason=reason,
                message=truncate(message, 1024),
                last_transition_time=at if before == status else now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                observed_generation=generation,
            )
        )
    return conditions


def recalled(status: "GPUNodeInventoryStatus") -> BootstrapState:
    """Return what a status says of earlier looks; a check of which it says nothing is undecided."""
    shown = {one.type: one for one in status.conditions or ()}
    states = {check: CheckState() for check in Check}
    for check, type_, up in _OF_CHECKS:
        condition = shown.get(type_.value)
        if condition is not None:
            states[check] = _recalled_check(condition, up)
    if status.phase in _PAST_VALIDATION:
        states[Check.VALIDATOR] = _UP
    elif status.phase is BootstrapPhase.VALIDATING_FAILED and all(
        states[check].track.standing is DebouncedState.UP for check in (Check.DRIVER, Check.TOOLKIT)
    ):
        states[Check.VALIDATOR] = CheckState(Track(DebouncedState.DOWN))
    was_ready = status.phase is BootstrapPhase.READY or _is_true(
        shown.get(InventoryCondition.INFRA_DEGRADED.value)
    )
    return BootstrapState(states, was_ready)


def _recalled_check(condition: Condition, up: str) -> CheckState:
    if condition.status == up:
        return _UP
    if condition.reason == NodeSoftware.NOT_REQUIRED.value:
        return _NOT_REQUIRED
    if condition.reason == NodeSoftware.NOT_READY.value:
        return CheckState(Track(DebouncedState.DOWN), condition.message)
    return CheckState()


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


_Status = Literal["True", "False", "Unknown"]


def _said(verdict: "ReadinessVerdict") -> "Iterator[tuple[str, _Status, str, str]]":
    bootstrap = verdict.bootstrap
    for check, type_, up in _OF_CHECKS:
        yield type_.value, *_said_of(bootstrap.states[check], up, is_managed=verdict.is_managed)
    down = ", ".join(check.value for check in bootstrap.down)
    yield _flag(
        InventoryCondition.INFRA_DEGRADED,
        is_so=verdict.is_degraded,
        text=f"it was ready, and is not any more: {down}",
    )
    yield _flag(
        InventoryCondition.DEGRADED_WORKLOADS,
        is_so=verdict.harms_workloads,
        text=f"pods use devices of the node while this is not ready: {down}",
    )
    obstacle = verdict.obstacle
    reason = ReadyForPooling.READY if obstacle is None else ReadyForPooling[obstacle.name]
    yield (
        InventoryCondition.READY_FOR_POOLING.value,
        "True" if obstacle is None else "False",
        reason.value,
        verdict.message,
    )


def _said_of(state: CheckState, up: str, *, is_managed: bool) -> tuple[_Status, str, str]:
    if not is_managed:
        return "Unknown", NodeSoftware.NOT_MANAGED.value, "the node opts out by its label"
    match state.track.standing:
        case DebouncedState.UNDECIDED:
            text = "not seen the same way often enough yet"
            return "Unknown", NodeSoftware.VALIDATING.value, text
        case DebouncedState.DOWN:
            is_true = up == "False"
            return "True" if is_true else "False", NodeSoftware.NOT_READY.value, state.text
        case DebouncedState.UP if not state.is_required:
            return "Unknown", NodeSoftware.NOT_REQUIRED.value, "nothing reports it or needs it"
        case DebouncedState.UP:
            is_true = up == "True"
            return "True" if is_true else "False", NodeSoftware.READY.value, ""


def _flag(type_: InventoryCondition, *, is_so: bool, text: str) -> tuple[str, _Status, str, str]:
    if is_so:
        return type_.value, "True", NodeSoftware.NOT_READY.value, text
    return type_.value, "False", NodeSoftware.AS_EXPECTED.value, ""

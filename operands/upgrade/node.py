"""One step of one node: its state decides, and the answer becomes actions and an entry of the progress.

A step changes the state once at most; the changed label causes the next step. Facts that change cause a step, too: `WaitUntil` is
for what time alone changes.
"""

from typing import TYPE_CHECKING, Final

from api.driver_upgrade import (
    REQUESTOR_MODE_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_STATE_LABEL,
    UpgradeState,
)
from api.text import truncate
from operands.upgrade import deadlines, emptying_states, idle_states, restart_states
from operands.upgrade.actions import (
    Annotate,
    NodeUpgrade,
    ReportReason,
    ReturnAgent,
    SetState,
    UpgradeProgress,
    WaitUntil,
)
from operands.upgrade.case import Advance, Stay
from operands.upgrade.out_of_service import is_agent_released, is_decided_by_pods
from operands.upgrade.reasons import UpgradeReason
from operands.upgrade.record import START_ANNOTATIONS, UpgradeRecord
from operands.upgrade.slots import is_external

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from operands.upgrade.actions import UpgradeAction
    from operands.upgrade.case import UpgradeCase, UpgradeMove

_STATES: "Final[Mapping[UpgradeState, Callable[[UpgradeCase], UpgradeMove]]]" = {
    UpgradeState.UNKNOWN: idle_states.idle,
    UpgradeState.UPGRADE_REQUIRED: emptying_states.required,
    UpgradeState.CORDON_REQUIRED: emptying_states.cordon,
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: emptying_states.wait_for_jobs,
    UpgradeState.POD_DELETION_REQUIRED: emptying_states.pod_deletion,
    UpgradeState.DRAIN_REQUIRED: emptying_states.drain,
    UpgradeState.POD_RESTART_REQUIRED: restart_states.pod_restart,
    UpgradeState.VALIDATION_REQUIRED: restart_states.validation,
    UpgradeState.UNCORDON_REQUIRED: restart_states.uncordon,
    UpgradeState.UPGRADE_DONE: idle_states.idle,
    UpgradeState.UPGRADE_FAILED: idle_states.failed,
}
"""All states but those of an external maintenance operator."""


def step(case: "UpgradeCase") -> NodeUpgrade | None:
    """Return what is done on the node now, and its progress.

    Equal cases give equal answers, and a case that has the effects of an answer's first actions gives the rest of them.
    None: no policy is for the node, and nothing of an upgrade is left on it.
    """
    move = _move(case)
    if move is None:
        return None
    message = truncate(_invalid_marks_text(case) + move.message, 1024)
    record = _record_after(case, move)
    actions: list[UpgradeAction] = []
    if isinstance(move, Stay) and _is_unrecorded(case):
        actions.append(Annotate(case.node.name, {UPGRADE_RECORD_ANNOTATION: record.encode()}))
    actions.extend(move.actions)
    actions.extend(_unmounting(case, record.state, actions))
    if isinstance(move, Advance):
        actions.append(_state_change(case, move, record))
    progress = UpgradeProgress(
        node=case.node.name,
        state=record.state,
        since=record.since,
        reason=move.reason,
        message=message,
        attempt=record.attempt,
        deadline=deadlines.deadline_of(case.parameters, record, case.times),
        is_overdue=deadlines.is_overdue(case.parameters, record, case.times),
    )
    if _is_new_reason(case, move):
        actions.append(ReportReason(case.node.name, move.reason, message))
    if not progress.state.is_idle and (wait := _wait(case, progress)):
        actions.append(wait)
    return NodeUpgrade(progress, tuple(actions))


def _move(case: "UpgradeCase") -> "UpgradeMove | None":
    if is_external(case.recorded):
        text = (
            "an external maintenance operator has the node: its state label and annotation"
            f" {REQUESTOR_MODE_ANNOTATION} are left alone"
        )
        return Stay(UpgradeReason.REQUESTOR_MODE, text)
    if case.node.pods is None and is_decided_by_pods(case.recorded):
        return Stay(UpgradeReason.PODS_UNREAD, "the pods on the node are not read yet")
    if not case.parameters.auto_upgrade or not case.node.is_selected:
        return idle_states.retired(case)
    return _STATES[case.record.state](case)


def _unmounting(
    case: "UpgradeCase", state: UpgradeState, actions: "Sequence[UpgradeAction]"
) -> "tuple[UpgradeAction, ...]":
    """Return the agent's way back for pods that cannot end without it, in a state that no deadline ends.

    It may then hold a driver that is still to load; the next attempt sends it away again.
    """
    node, back = case.node, ReturnAgent(case.node.name)
    has_end = state.is_in_progress and case.parameters.auto_upgrade
    if has_end or is_external(case.recorded) or back in actions or not is_agent_released(node):
        return ()
    waits = any(pod.is_terminating and pod.mounts_caches for pod in node.pods or ())
    return (back,) if waits else ()


def _invalid_marks_text(case: "UpgradeCase") -> str:
    remarks = ""
    if not case.recorded.is_label_valid:
        label = truncate(case.node.labels.get(UPGRADE_STATE_LABEL, ""), 64)
        remarks = f"label {UPGRADE_STATE_LABEL}={label} names no state; "
    if not case.node.is_ready and case.record.state.is_in_progress:
        remarks += "the node is not ready; "
    return remarks


def _is_unrecorded(case: "UpgradeCase") -> bool:
    return not (case.recorded.is_written or case.record.state.is_idle or is_external(case.recorded))


def _record_after(case: "UpgradeCase", move: "UpgradeMove") -> UpgradeRecord:
    before = case.record
    if isinstance(move, Stay):
        return before
    return UpgradeRecord(
        move.state,
        case.times.now,
        attempt=before.attempt if move.attempt is None else move.attempt,
        reason=move.reason,
        message=move.message,
        digest=before.digest if move.digest is None else move.digest,
        revision=before.revision if move.revision is None else move.revision,
        replaces=before.replaces if move.replaces is None else move.replaces,
        until=deadlines.planned_end(case.parameters, move.state, case.times.now),
    )


def _state_change(case: "UpgradeCase", move: Advance, record: UpgradeRecord) -> SetState:
    """Return the change of the label, with the record and with the GPU Operator's start times."""
    node = case.node
    annotations: dict[str, str | None] = {
        key: None for key in START_ANNOTATIONS.values() if key in node.annotations
    }
    annotations.update(move.annotations)
    if move.state is not UpgradeState.UNKNOWN:
        annotations[UPGRADE_RECORD_ANNOTATION] = record.encode()
    has_start = move.state in START_ANNOTATIONS
    if has_start and deadlines.limit_s(case.parameters, move.state):
        seconds = str(int(case.times.now.timestamp()))
        annotations[START_ANNOTATIONS[move.state]] = seconds
    before = node.labels.get(UPGRADE_STATE_LABEL, "")
    return SetState(node.name, before, move.state, annotations)


def _is_new_reason(case: "UpgradeCase", move: "UpgradeMove") -> bool:
    """Return whether the reason is another one than in the node's entry; a node at rest has none."""
    if isinstance(move, Advance):
        return True
    is_reported = case.node.reported_reason.partition(":")[0] == move.reason.value
    return not case.record.state.is_idle and not is_reported


def _wait(case: "UpgradeCase", progress: UpgradeProgress) -> WaitUntil | None:
    """Return when time alone changes the answer next."""
    overdue = None if progress.since is None else progress.since + deadlines.OVERDUE_AFTER
    later = [item for item in (progress.deadline, overdue) if item and item > case.times.now]
    return WaitUntil(progress.node, min(later)) if later else None

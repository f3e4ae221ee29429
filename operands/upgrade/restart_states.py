"""States in which the driver pod is replaced, validated, and the node is put into service again.

Before a driver is unloaded nothing may use it: users that came late are evicted here too, operands leave by their deploy
labels, and then our own pods. Where only the driver pod restarts, all of them stay.
"""

from typing import TYPE_CHECKING

from api.driver_upgrade import DEPLOYED, UpgradeState
from api.text import listed
from operands.upgrade import driver_pods, driver_users
from operands.upgrade.actions import DeletePod, PauseOperand, ReleaseAgent
from operands.upgrade.case import Advance, Stay
from operands.upgrade.facts import DriverRevision
from operands.upgrade.idle_states import done, put_off
from operands.upgrade.out_of_service import (
    bring_back_software,
    hold_driver_off,
    is_agent_released,
    is_cordoned_by_others,
    keep_out,
    load_driver,
    validate_again,
)
from operands.upgrade.reasons import UpgradeReason

if TYPE_CHECKING:
    from operands.upgrade.case import UpgradeCase, UpgradeMove
    from operands.upgrade.facts import DriverPod, PodOnNode


def pod_restart(case: "UpgradeCase") -> "UpgradeMove":
    """State pod-restart-required."""
    stale = [pod for pod in driver_pods.stale_pods(case.recorded) if not pod.is_terminating]
    if stale or driver_pods.waits_for_safe_load(case.node):
        move = put_off(case) or _full_after_all(case) or _emptied(case) or _replaced(case, stale)
    else:
        move = _held_off(case) or _starting(case)
    if isinstance(move, Advance) or not case.is_over:
        return move
    text = f"the driver was not ready in time: {move.message}"
    return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.RESTART_TIMED_OUT, text)


def validation(case: "UpgradeCase") -> "UpgradeMove":
    """State validation-required."""
    if driver_pods.stale_pods(case.recorded) or driver_pods.waits_for_safe_load(case.node):
        # The node is empty but for what came back for the validation.
        text = "the driver is to be loaded again"
        return Advance(UpgradeState.POD_RESTART_REQUIRED, UpgradeReason.OUTDATED, text)
    if case.is_validated:
        return _validated(case)
    reason, text = _not_validated(case)
    if case.is_over:
        text = f"the driver was not validated in time: {text}"
        return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.VALIDATION_TIMED_OUT, text)
    actions = keep_out(case.node)
    if driver_pods.is_driver_ready(case.recorded):
        actions = (*actions, *bring_back_software(case.node), *validate_again(case.node))
    return Stay(reason, text, actions)


def uncordon(case: "UpgradeCase") -> "UpgradeMove":
    """State uncordon-required."""
    if not case.may_return:
        _, text = _not_validated(case)
        return Advance(UpgradeState.VALIDATION_REQUIRED, UpgradeReason.VALIDATING, text)
    return done(case, UpgradeReason.UPGRADED, "the driver is upgraded")


def _full_after_all(case: "UpgradeCase") -> Advance | None:
    """Return where an upgrade goes that was to restart the driver pod alone, and cannot any more."""
    is_full = case.record.reason is UpgradeReason.RESTART_ONLY and not driver_pods.is_restart_only(
        case.recorded
    )
    if not is_full or not driver_users.users_of(case.node):
        return None
    text = "the driver's configuration has changed since: pods have to leave"
    return Advance(UpgradeState.CORDON_REQUIRED, UpgradeReason.STARTED, text)


def _held_off(case: "UpgradeCase") -> Stay | None:
    """Return how the driver pod is held off that its DaemonSet makes of a revision with another configuration.

    The one before was deleted while pods of users stayed, and they have to leave first.
    """
    record, node = case.record, case.node
    is_alone = record.reason is UpgradeReason.RESTART_ONLY and bool(record.digest)
    held_off = hold_driver_off(node)
    if not is_alone or node.desired_digest == record.digest or not held_off:
        return None
    if driver_pods.is_driver_ready(case.recorded):
        return None
    text = (
        "the driver's configuration has changed since: its pod is held off until the node is empty"
    )
    return Stay(UpgradeReason.SAFE_LOAD, text, (*keep_out(node), *held_off))


def _emptied(case: "UpgradeCase") -> "UpgradeMove | None":
    """Return what has to leave before the driver is unloaded; None: nothing has."""
    node, kept_out = case.node, keep_out(case.node)
    if driver_pods.is_restart_only(case.recorded):
        return None
    users = driver_users.occupants_for_deletion(node, case.parameters.pod_deletion)
    if users.holders:
        text = f"the driver is held by {listed(users.holders)}"
        return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.DRIVER_HELD, text)
    if not users.is_none:
        actions, reason, text = driver_users.evictions(node, users)
        return Stay(reason, text, (*kept_out, *actions))
    if operands := driver_users.operands_of(node):
        labels = sorted({pod.deploy_label for pod in operands})
        paused = tuple(
            PauseOperand(node.name, label) for label in labels if node.labels.get(label) == DEPLOYED
        )
        text = f"{listed(pod.ref for pod in operands)} leave by {listed(labels)}"
        return Stay(UpgradeReason.OPERANDS_LEAVE, text, (*kept_out, *paused))
    released = () if is_agent_released(node) else (ReleaseAgent(node.name),)
    agents = [pod.ref for pod in node.identified_pods if pod.is_agent]
    if released or agents:
        text = f"the node agent leaves: {listed(agents) or 'its label is set'}"
        return Stay(UpgradeReason.AGENT_LEAVES, text, (*kept_out, *released))
    return None


def _replaced(case: "UpgradeCase", stale: "list[DriverPod]") -> Stay:
    node, kept_out = case.node, keep_out(case.node)
    if stale:
        held = (pod for pod in node.identified_pods if pod.is_held and not pod.deploy_label)
        gone: list[DriverPod | PodOnNode] = [*stale, *held]
        deleted = tuple(DeletePod(node.name, pod.namespace, pod.name, pod.uid) for pod in gone)
        text = f"deletes driver pod {listed(pod.name for pod in stale)}"
        return Stay(UpgradeReason.RESTARTING, text, (*kept_out, *deleted))
    return Stay(UpgradeReason.DRIVER_STARTING, "the driver loads", (*kept_out, *load_driver(node)))


def _starting(case: "UpgradeCase") -> "UpgradeMove":
    kept_out = keep_out(case.node)
    if driver_pods.is_driver_ready(case.recorded):
        return _ready(case)
    pods = case.node.driver_pods
    if not pods:
        text = f"its DaemonSet has not created the driver pod{driver_pods.pending_cause(case.node)}"
        return Stay(UpgradeReason.NO_DRIVER_POD, text, kept_out)
    current = driver_pods.current_pod(case.recorded)
    ending = [pod.name for pod in pods if pod.is_terminating]
    if ending:
        text = f"waits for the end of driver pod {listed(ending)}"
        return Stay(UpgradeReason.DRIVER_TERMINATING, text, kept_out)
    if current is None or len(pods) > 1:
        unknown = [pod.name for pod in pods if pod.revision is DriverRevision.UNKNOWN]
        names = listed(unknown or [pod.name for pod in pods])
        text = f"which of the driver pods is the newest is not known: {names}"
        return Stay(UpgradeReason.REVISION_UNKNOWN, text, kept_out)
    return _not_ready(case, current)


def _not_ready(case: "UpgradeCase", current: "DriverPod") -> "UpgradeMove":
    cause = f": {current.message}" if current.message else ""
    if not current.is_scheduled:
        text = f"driver pod {current.name} is not scheduled{cause}"
        return Stay(UpgradeReason.NO_DRIVER_POD, text, keep_out(case.node))
    if current.restarts > driver_pods.MOST_RESTARTS:
        text = f"driver pod {current.name} restarted {current.restarts} times{cause}"
        return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.DRIVER_CRASHES, text)
    text = f"driver pod {current.name} is not ready{cause}"
    return Stay(UpgradeReason.DRIVER_STARTING, text, keep_out(case.node))


def _ready(case: "UpgradeCase") -> "UpgradeMove":
    if not case.parameters.has_validator:
        return _validated(case)
    return Advance(
        UpgradeState.VALIDATION_REQUIRED,
        UpgradeReason.DRIVER_READY,
        "the new driver is ready",
        bring_back_software(case.node),
        replaces="",
    )


def _validated(case: "UpgradeCase") -> Advance:
    if is_cordoned_by_others(case.node):
        return done(case, UpgradeReason.UPGRADED, "the driver is upgraded")
    text = "the new driver is validated"
    return Advance(
        UpgradeState.UNCORDON_REQUIRED,
        UpgradeReason.VALIDATED,
        text,
        bring_back_software(case.node),
        replaces="",
    )


def _not_validated(case: "UpgradeCase") -> tuple[UpgradeReason, str]:
    if not driver_pods.is_driver_ready(case.recorded):
        text = f"the driver is not ready{driver_pods.pending_cause(case.node)}"
        return UpgradeReason.DRIVER_STARTING, text
    waiting = [pod for pod in case.node.validators if not pod.is_ready]
    if not waiting and (agents := case.unready_agents):
        return UpgradeReason.VALIDATING, f"node agent {listed(agents)} is not ready"
    if not waiting:
        return UpgradeReason.NO_VALIDATOR, "no validator pod is on the node: look at its DaemonSet"
    cause = next((f": {pod.message}" for pod in waiting if pod.message), "")
    names = listed(pod.name for pod in waiting)
    return UpgradeReason.VALIDATING, f"validator {names} is not ready{cause}"

"""States before the driver pod is touched: upgrade-required to drain-required.

The old driver serves in all of them, so a node can be given back at any moment: where it is to be skipped, and where what
keeps it from being emptied does not go.
"""

from typing import TYPE_CHECKING, Final

from api.driver_upgrade import (
    INITIALLY_UNSCHEDULABLE_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UpgradeState,
)
from api.text import listed
from operands.upgrade import driver_pods, driver_users
from operands.upgrade.actions import Cordon
from operands.upgrade.case import Advance, Stay
from operands.upgrade.facts import DriverRevision
from operands.upgrade.idle_states import done, put_off
from operands.upgrade.out_of_service import (
    give_back,
    is_cordoned_by_others,
    is_out_of_service,
    keep_out,
    withhold,
)
from operands.upgrade.reasons import UpgradeReason
from operands.upgrade.slots import SlotRefused, is_skipped

if TYPE_CHECKING:
    from operands.upgrade.actions import Annotations
    from operands.upgrade.case import UpgradeCase, UpgradeMove


_RESTART: Final = UpgradeState.POD_RESTART_REQUIRED


def required(case: "UpgradeCase") -> "UpgradeMove":
    """State upgrade-required."""
    node = case.node
    is_known = any(pod.revision is DriverRevision.CURRENT for pod in node.driver_pods)
    if is_known and not driver_pods.is_still_needed(case.recorded):
        return _nothing_to_upgrade(case)
    if isinstance(case.slot, SlotRefused):
        returned = give_back(node) if case.may_return else ()
        return Stay(case.slot.reason, case.slot.message, returned)
    return _started(case)


def cordon(case: "UpgradeCase") -> "UpgradeMove":
    """State cordon-required."""
    if move := _ended_early(case):
        return move
    kept_out = keep_out(case.node)
    if case.is_over and Cordon(case.node.name) in kept_out:
        text = (
            "the node could not be cordoned: look for a webhook or a missing right to patch nodes"
        )
        return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.NOT_CORDONED, text)
    return Advance(
        UpgradeState.WAIT_FOR_JOBS_REQUIRED,
        UpgradeReason.CORDONING,
        "the node takes no new pods",
        kept_out,
    )


def wait_for_jobs(case: "UpgradeCase") -> "UpgradeMove":
    """State wait-for-jobs-required."""
    if move := _ended_early(case):
        return move
    criteria = case.parameters.awaited
    kept_out = keep_out(case.node)
    if not criteria.is_any and case.parameters.pod_deletion is None:
        text = "no pods are to be waited for, and podDeletion is off"
        return Advance(UpgradeState.DRAIN_REQUIRED, UpgradeReason.POD_DELETION_OFF, text, kept_out)
    awaited = driver_users.awaited_pods(case.node, criteria)
    if not awaited:
        text = "no pod is to be waited for"
        return Advance(UpgradeState.POD_DELETION_REQUIRED, UpgradeReason.PODS_ENDED, text, kept_out)
    names = listed(pod.ref for pod in awaited)
    if case.is_over:
        text = f"{names} did not end within {criteria.limit_s} s"
        return Advance(UpgradeState.POD_DELETION_REQUIRED, UpgradeReason.WAIT_OVER, text, kept_out)
    return Stay(UpgradeReason.WAITING_FOR_PODS, f"waits for the end of {names}", kept_out)


def pod_deletion(case: "UpgradeCase") -> "UpgradeMove":
    """State pod-deletion-required."""
    if move := _ended_early(case):
        return move
    limits, kept_out = case.parameters.pod_deletion, keep_out(case.node)
    if limits is None:
        text = "podDeletion is off"
        return Advance(UpgradeState.DRAIN_REQUIRED, UpgradeReason.POD_DELETION_OFF, text, kept_out)
    users = driver_users.occupants_for_deletion(case.node, limits)
    if users.is_none:
        text = "nothing uses the driver"
        return Advance(_RESTART, UpgradeReason.PODS_GONE, text, kept_out)
    if users.holders:
        text = f"the driver is held by {listed(users.holders)}"
        return _not_emptied(case, UpgradeReason.DRIVER_HELD, text)
    if case.is_over:
        text = _too_late(case, users, limits.limit_s)
        return _not_emptied(case, UpgradeReason.EVICTION_TIMED_OUT, text)
    actions, reason, text = driver_users.evictions(case.node, users)
    return Stay(reason, text, (*kept_out, *actions))


def drain(case: "UpgradeCase") -> "UpgradeMove":
    """State drain-required."""
    if move := _ended_early(case):
        return move
    limits, kept_out = case.parameters.drain, keep_out(case.node)
    if limits is None:
        text = "drain is off"
        return Advance(_RESTART, UpgradeReason.DRAIN_OFF, text, kept_out)
    if holders := driver_users.lasting_holders(case.node):
        text = f"the driver is held by {listed(holders)}"
        return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.DRIVER_HELD, text)
    pods = driver_users.occupants_for_drain(case.node, limits)
    if pods.is_none:
        text = "the node is drained"
        return Advance(_RESTART, UpgradeReason.PODS_GONE, text, kept_out)
    if pods.holders:
        text = f"the node cannot be drained of {listed(pods.holders)}"
        return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.DRAIN_BLOCKED, text)
    if case.is_over:
        text = _too_late(case, pods, limits.limit_s)
        return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.DRAIN_TIMED_OUT, text)
    actions, reason, text = driver_users.evictions(case.node, pods)
    return Stay(reason, text, (*kept_out, *actions))


def _nothing_to_upgrade(case: "UpgradeCase") -> Advance:
    text = "the driver pod is of the newest revision"
    if not is_out_of_service(case.node) or case.is_validated:
        return done(case, UpgradeReason.NOTHING_TO_UPGRADE, text)
    text = f"{text}, and the driver is not ready or not validated"
    return Advance(UpgradeState.UPGRADE_FAILED, case.record.reason or UpgradeReason.FAILED, text)


def _started(case: "UpgradeCase") -> Advance:
    node = case.node
    annotations: Annotations = {}
    if is_cordoned_by_others(node):
        annotations = {INITIALLY_UNSCHEDULABLE_ANNOTATION: "true"}
    elif INITIALLY_UNSCHEDULABLE_ANNOTATION in node.annotations:
        annotations = {INITIALLY_UNSCHEDULABLE_ANNOTATION: None}
    replaces = case.record.replaces
    if driver_pods.is_requested(node):
        annotations = {**annotations, UPGRADE_REQUESTED_ANNOTATION: None}
        replaces = max((pod.uid for pod in node.driver_pods), default="")
    if driver_pods.is_restart_only(case.recorded):
        state, reason, actions = _RESTART, UpgradeReason.RESTART_ONLY, keep_out(node)
        text = "the driver's configuration is unchanged: its pod restarts, other pods stay"
    else:
        state, reason, actions = UpgradeState.CORDON_REQUIRED, UpgradeReason.STARTED, withhold(node)
        text = f"attempt {case.record.attempt} begins"
    return Advance(
        state,
        reason,
        text,
        actions,
        annotations=annotations,
        replaces=replaces,
        revision=node.desired_revision,
        digest=node.desired_digest,
    )


def _ended_early(case: "UpgradeCase") -> Advance | None:
    """Return where the upgrade goes instead: it is to be skipped, would take the driver away, or has nothing left to do."""
    if is_skipped(case.recorded) and driver_pods.serves_old_driver(case.recorded):
        text = "the upgrade ends before the driver is touched"
        return Advance(
            UpgradeState.UPGRADE_REQUIRED, UpgradeReason.SKIPPED, text, give_back(case.node)
        )
    if move := put_off(case):
        return move
    is_known = all(pod.revision is DriverRevision.CURRENT for pod in case.node.driver_pods)
    if is_known and not driver_pods.is_still_needed(case.recorded):
        text = "no driver pod is to be replaced any more"
        return Advance(_RESTART, UpgradeReason.NOTHING_TO_UPGRADE, text)
    return None


def _not_emptied(case: "UpgradeCase", reason: UpgradeReason, text: str) -> Advance:
    """Return what comes where evicting the users does not suffice: a drain, unless it would empty the node in vain."""
    is_drained = case.parameters.drain is not None and not driver_users.lasting_holders(case.node)
    state = UpgradeState.DRAIN_REQUIRED if is_drained else UpgradeState.UPGRADE_FAILED
    return Advance(state, reason, text)


def _too_late(case: "UpgradeCase", pods: "driver_users.Occupants", seconds: int) -> str:
    _, _, text = driver_users.evictions(case.node, pods)
    return f"{pods.names()} did not leave within {seconds} s: {text}"

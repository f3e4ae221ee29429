"""States in which nothing happens on the node: not examined, done, failed; and nodes without a policy.

A node at rest that is out of service was changed by hand in the middle of an upgrade: it goes back into service if its
driver is in order, and is a failed one otherwise.
"""

from typing import TYPE_CHECKING

from api.driver_upgrade import (
    INITIALLY_UNSCHEDULABLE_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_STATE_LABEL,
    UpgradeState,
)
from api.text import listed
from operands.upgrade import driver_pods, out_of_service
from operands.upgrade.case import Advance, Stay
from operands.upgrade.facts import DriverRevision
from operands.upgrade.reasons import UpgradeReason
from operands.upgrade.record import START_ANNOTATIONS
from operands.upgrade.slots import is_skipped

if TYPE_CHECKING:
    from operands.upgrade.actions import Annotations, UpgradeAction
    from operands.upgrade.case import UpgradeCase, UpgradeMove

OUR_ANNOTATIONS = (
    UPGRADE_RECORD_ANNOTATION,
    INITIALLY_UNSCHEDULABLE_ANNOTATION,
    *START_ANNOTATIONS.values(),
)
"""On a Node, beside the marks of `operands.upgrade.out_of_service`: removed with the state label."""


def idle(case: "UpgradeCase") -> "UpgradeMove":
    """Return the move of a node in state unknown or upgrade-done."""
    if need := driver_pods.need_of(case.node):
        return _required(case, *need, attempt=1)
    if out_of_service.is_out_of_service(case.node):
        return _found_out_of_service(case)
    if case.record.state is UpgradeState.UPGRADE_DONE:
        return Stay(*_resting_reason(case))
    reason, message = _resting_reason(case)
    if reason in {UpgradeReason.UP_TO_DATE, UpgradeReason.ORPHAN}:
        return Advance(UpgradeState.UPGRADE_DONE, reason, message)
    return Stay(reason, message)


def failed(case: "UpgradeCase") -> "UpgradeMove":
    """State upgrade-failed: it ends by a driver that is ready and validated, or by a new attempt."""
    node, record = case.node, case.record
    if case.is_validated and not driver_pods.is_still_needed(case.recorded):
        text = "the driver is ready and validated"
        return done(case, UpgradeReason.RECOVERED, text)
    need = driver_pods.need_of(node)
    is_another = bool(record.revision) and node.desired_revision != record.revision
    if need and (is_another or driver_pods.is_requested(node)):
        return _required(case, *need, attempt=1)
    returned: tuple[UpgradeAction, ...] = ()
    if driver_pods.serves_old_driver(case.recorded):
        returned = out_of_service.give_back(node)
    elif driver_pods.is_driver_ready(case.recorded):
        # The validator is among what comes back.
        returned = (*out_of_service.bring_back_software(node), *out_of_service.validate_again(node))
    reason = record.reason or UpgradeReason.FAILED
    message = record.message or f"the node was labelled {UpgradeState.UPGRADE_FAILED.value}"
    if not driver_pods.is_still_needed(case.recorded) or is_skipped(case.recorded):
        return Stay(reason, message, returned)
    if case.is_over:
        text = f"attempt {record.attempt + 1}; the one before failed: {message}"
        return _required(case, reason, text, attempt=record.attempt + 1)
    return Stay(reason, message, returned)


def retired(case: "UpgradeCase") -> "UpgradeMove | None":
    """No policy upgrades the node: give it back, and then remove what upgrades have written; None: nothing is left."""
    node = case.node
    if node.is_selected:
        reason, text = UpgradeReason.AUTO_UPGRADE_OFF, f"autoUpgrade is off for {_owner_text(case)}"
    else:
        reason, text = UpgradeReason.UNMANAGED, "no driver DaemonSet selects the node"
    resumed = out_of_service.load_driver(node) if driver_pods.is_held_off(node) else ()
    if (
        out_of_service.is_out_of_service(node)
        and node.is_selected
        and not driver_pods.serves_old_driver(case.recorded)
    ):
        text = f"{text}; the node returns to service once its"
        if not driver_pods.is_driver_ready(case.recorded):
            return Stay(reason, f"{text} driver is ready: {_driver_text(case)}", resumed)
        if out_of_service.is_agent_released(node) or case.unready_agents:
            cause = listed(case.unready_agents) or "it is on its way back"
            return Stay(
                reason, f"{text} agent is ready: {cause}", out_of_service.bring_back_software(node)
            )
    annotations = _without(case, *OUR_ANNOTATIONS)
    actions = (*resumed, *out_of_service.give_back(node))
    if not (annotations or actions or node.labels.get(UPGRADE_STATE_LABEL)):
        return None
    return Advance(UpgradeState.UNKNOWN, reason, text, actions, annotations)


def put_off(case: "UpgradeCase") -> Advance | None:
    """Return where an upgrade goes that would leave the node without a driver; None: it would not.

    The node waits, in service where it has a driver, until what keeps the driver pod away is gone.
    """
    text = driver_pods.kept_away(case.recorded)
    if not text:
        return None
    returned = out_of_service.give_back(case.node) if case.may_return else ()
    return Advance(UpgradeState.UPGRADE_REQUIRED, UpgradeReason.DRIVER_KEPT_AWAY, text, returned)


def done(case: "UpgradeCase", reason: UpgradeReason, message: str) -> Advance:
    """Return the end of an upgrade: everything of ours is given back, and then the state changes."""
    node = case.node
    if out_of_service.is_cordoned_by_others(node):
        message = f"{message}; another client cordoned the node: uncordon it to use it"
    return Advance(
        UpgradeState.UPGRADE_DONE,
        reason,
        message,
        out_of_service.give_back(node),
        annotations=_without(case, INITIALLY_UNSCHEDULABLE_ANNOTATION),
        replaces="",
    )


def _required(case: "UpgradeCase", reason: UpgradeReason, message: str, *, attempt: int) -> Advance:
    annotations: Annotations = {}
    if out_of_service.is_cordoned_by_others(case.node):
        annotations = {INITIALLY_UNSCHEDULABLE_ANNOTATION: "true"}
    return Advance(
        UpgradeState.UPGRADE_REQUIRED,
        reason,
        message,
        annotations=annotations,
        attempt=attempt,
    )


def _found_out_of_service(case: "UpgradeCase") -> "UpgradeMove":
    if case.is_validated:
        return done(case, UpgradeReason.RECOVERED, "the driver is ready and validated")
    text = (
        f"the node is out of service for an upgrade, and label {UPGRADE_STATE_LABEL} was changed by"
        f" hand: {_driver_text(case)}"
    )
    return Advance(UpgradeState.UPGRADE_FAILED, UpgradeReason.LABEL_LOST, text)


def _resting_reason(case: "UpgradeCase") -> tuple[UpgradeReason, str]:
    pods = case.node.driver_pods
    if not any(pod.is_scheduled for pod in pods):
        text = f"no driver pod is scheduled to the node{driver_pods.pending_cause(case.node)}; other nodes go on"
        return UpgradeReason.NO_DRIVER_POD, text
    if any(pod.revision is DriverRevision.CURRENT for pod in pods):
        return UpgradeReason.UP_TO_DATE, f"driver pod {pods[0].name} is of the newest revision"
    orphans = [pod for pod in pods if pod.revision is DriverRevision.ORPHAN]
    if orphans:
        return (
            UpgradeReason.ORPHAN,
            f"driver pod {orphans[0].name} belongs to no DaemonSet: request an upgrade to replace it",
        )
    text = f"the revision of driver pod {pods[0].name} is not known"
    return UpgradeReason.REVISION_UNKNOWN, text


def _driver_text(case: "UpgradeCase") -> str:
    pods = case.node.driver_pods
    if not pods:
        return "no driver pod is on the node"
    return f"driver pod {pods[0].name} is not ready or not validated{driver_pods.pending_cause(case.node)}"


def _owner_text(case: "UpgradeCase") -> str:
    return f"NVIDIADriver {case.owner}" if case.owner else "the ClusterPolicy"


def _without(case: "UpgradeCase", *keys: str) -> "Annotations":
    return {key: None for key in keys if key in case.node.annotations}

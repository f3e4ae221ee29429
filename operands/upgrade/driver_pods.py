"""The driver pods of a node: which are to be replaced, whether the driver is there, and whether an upgrade is needed."""

from typing import TYPE_CHECKING, Final

from api.driver_upgrade import (
    DRIVER_DEPLOY_LABEL,
    PAUSED_FOR_UPGRADE,
    SAFE_LOAD_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
)
from operands.upgrade.facts import DriverRevision
from operands.upgrade.reasons import UpgradeReason

if TYPE_CHECKING:
    from operands.upgrade.facts import DriverPod, UpgradeNode
    from operands.upgrade.record import RecordedNode

MOST_RESTARTS: Final = 10
"""A driver pod with a container that is not ready and restarted more often has failed."""
_TRUE: Final = "true"


def is_requested(node: "UpgradeNode") -> bool:
    return node.annotations.get(UPGRADE_REQUESTED_ANNOTATION) == _TRUE


def is_held_off(node: "UpgradeNode") -> bool:
    """Return whether its deploy label keeps the driver's DaemonSet from making a pod."""
    return node.labels.get(DRIVER_DEPLOY_LABEL) == PAUSED_FOR_UPGRADE


def waits_for_safe_load(node: "UpgradeNode") -> bool:
    """Return whether the driver is to load once nothing uses it: its pod waits, or is held off."""
    return bool(node.annotations.get(SAFE_LOAD_ANNOTATION)) or is_held_off(node)


def need_of(node: "UpgradeNode") -> tuple[UpgradeReason, str] | None:
    """Return why a node that is at rest needs an upgrade; an orphan needs one only where it is requested."""
    outdated = [pod for pod in node.driver_pods if pod.revision is DriverRevision.OUTDATED]
    if outdated:
        return UpgradeReason.OUTDATED, f"driver pod {outdated[0].name} is of an older revision"
    if waits_for_safe_load(node):
        return (
            UpgradeReason.SAFE_LOAD,
            "the driver waits until nothing uses the driver before it loads",
        )
    if is_requested(node):
        return UpgradeReason.REQUESTED, f"annotation {UPGRADE_REQUESTED_ANNOTATION} asks for it"
    return None


def stale_pods(recorded: "RecordedNode") -> tuple["DriverPod", ...]:
    """Return the driver pods that are to be replaced."""
    return tuple(
        pod
        for pod in recorded.node.driver_pods
        if pod.revision in {DriverRevision.OUTDATED, DriverRevision.ORPHAN}
        or (pod.uid == recorded.record.replaces and bool(pod.uid))
    )


def current_pod(recorded: "RecordedNode") -> "DriverPod | None":
    """Return the driver pod that stays: up to date, and on its way to be ready."""
    stale = stale_pods(recorded)
    fitting = (
        pod
        for pod in recorded.node.driver_pods
        if pod.revision is DriverRevision.CURRENT and not pod.is_terminating and pod not in stale
    )
    return max(fitting, key=lambda pod: (pod.is_scheduled, pod.is_ready, pod.name), default=None)


def is_still_needed(recorded: "RecordedNode") -> bool:
    """Return whether anything is left for an upgrade that has begun, or is requested, to replace or to load."""
    node = recorded.node
    return bool(stale_pods(recorded)) or waits_for_safe_load(node) or is_requested(node)


def is_driver_ready(recorded: "RecordedNode") -> bool:
    """Return whether the driver that the node is to have is there, and no other one."""
    current = current_pod(recorded)
    if current is None or not (current.is_ready and current.is_scheduled):
        return False
    return len(recorded.node.driver_pods) == 1 and not waits_for_safe_load(recorded.node)


def serves_old_driver(recorded: "RecordedNode") -> bool:
    """Return whether the driver that is to be replaced still serves: nothing has touched it."""
    pods = recorded.node.driver_pods
    return (
        bool(pods)
        and all(pod.is_ready and pod.is_scheduled and not pod.is_terminating for pod in pods)
        and set(pods) == set(stale_pods(recorded))
        and not waits_for_safe_load(recorded.node)
    )


def pending_cause(node: "UpgradeNode") -> str:
    """Return why a driver pod is absent or not ready, as the end of a sentence; it may be empty."""
    if not node.driver_pods and node.driver_obstacle:
        return f": {node.driver_obstacle}"
    return next((f": {pod.message}" for pod in node.driver_pods if pod.message), "")


def kept_away(recorded: "RecordedNode") -> str:
    """Return why the node would be left without a driver if the upgrade went on; empty: it would not."""
    node = recorded.node
    is_replaced = bool(stale_pods(recorded)) or is_requested(node) or is_held_off(node)
    if not (is_replaced and node.driver_obstacle):
        return ""
    return f"the node would be left without a driver: {node.driver_obstacle}"


def is_restart_only(recorded: "RecordedNode") -> bool:
    """Return whether the driver's configuration stays the same, so that pods of users may stay."""
    node = recorded.node
    if is_requested(node) or waits_for_safe_load(node) or not node.desired_digest:
        return False
    stale = stale_pods(recorded)
    return bool(stale) and all(
        pod.revision is DriverRevision.OUTDATED
        and pod.config_digest == node.desired_digest
        and pod.uid != recorded.record.replaces
        for pod in stale
    )

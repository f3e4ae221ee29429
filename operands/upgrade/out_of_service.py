"""What takes a node out of service for its upgrade, and what gives it back.

Three marks on the node are ours: withheld units, a cordon of our field manager, the agent's label. Each is taken and given
back by itself, so any part of them may be there after a crash. Operands that are paused are given back too, but say nothing
about an upgrade: the driver's own init container pauses them as well.
"""

from typing import TYPE_CHECKING

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    DEPLOY_LABEL_PREFIX,
    DEPLOYED,
    DRIVER_DEPLOY_LABEL,
    DRIVER_UPGRADE,
    INITIALLY_UNSCHEDULABLE_ANNOTATION,
    PAUSED_FOR_UPGRADE,
    SAFE_LOAD_ANNOTATION,
    UNITS_WITHHELD_ANNOTATION,
    UpgradeState,
)
from operands.upgrade.actions import (
    Annotate,
    Cordon,
    DeletePod,
    PauseOperand,
    ResumeOperand,
    ReturnAgent,
    ReturnUnits,
    Uncordon,
    WithholdUnits,
)
from operands.upgrade.driver_pods import is_held_off

if TYPE_CHECKING:
    from operands.upgrade.actions import UpgradeAction
    from operands.upgrade.facts import UpgradeNode
    from operands.upgrade.record import RecordedNode


def is_withheld(node: "UpgradeNode") -> bool:
    return node.annotations.get(UNITS_WITHHELD_ANNOTATION) == DRIVER_UPGRADE


def is_cordoned_by_us(node: "UpgradeNode") -> bool:
    return not node.is_schedulable and node.owns_cordon


def is_agent_released(node: "UpgradeNode") -> bool:
    return node.labels.get(AGENT_DEPLOY_LABEL) == PAUSED_FOR_UPGRADE


def is_out_of_service(node: "UpgradeNode") -> bool:
    return is_withheld(node) or is_cordoned_by_us(node) or is_agent_released(node)


def is_decided_by_pods(recorded: "RecordedNode") -> bool:
    """Return whether the pods on the node have to be read before anything is decided about it.

    That holds for each state in which the node is emptied, or may be given back.
    """
    is_state = recorded.state.is_in_progress or recorded.state is UpgradeState.UPGRADE_FAILED
    return is_state or is_out_of_service(recorded.node)


def is_cordoned_by_others(node: "UpgradeNode") -> bool:
    return not node.is_schedulable and not node.owns_cordon


def withhold(node: "UpgradeNode") -> "tuple[UpgradeAction, ...]":
    return () if is_withheld(node) else (WithholdUnits(node.name),)


def keep_out(node: "UpgradeNode") -> "tuple[UpgradeAction, ...]":
    """Return what keeps new pods away.

    A node that was cordoned by another client when its upgrade started, and is uncordoned since, is left uncordoned:
    it costs no unavailability.
    """
    if node.is_schedulable and INITIALLY_UNSCHEDULABLE_ANNOTATION not in node.annotations:
        return (*withhold(node), Cordon(node.name))
    return withhold(node)


def bring_back_software(node: "UpgradeNode") -> "tuple[UpgradeAction, ...]":
    """Return what brings back the operands and our own pods, which need the driver; it comes by `load_driver`."""
    resumed = tuple(
        ResumeOperand(node.name, label)
        for label, value in sorted(node.labels.items())
        if label.startswith(DEPLOY_LABEL_PREFIX)
        and label != DRIVER_DEPLOY_LABEL
        and value == PAUSED_FOR_UPGRADE
    )
    return (*resumed, ReturnAgent(node.name)) if is_agent_released(node) else resumed


def hold_driver_off(node: "UpgradeNode") -> "tuple[UpgradeAction, ...]":
    """Return what keeps the driver's DaemonSet from making a pod; nothing where it does not select nodes by the label."""
    is_selected = node.labels.get(DRIVER_DEPLOY_LABEL) == DEPLOYED
    return (PauseOperand(node.name, DRIVER_DEPLOY_LABEL),) if is_selected else ()


def load_driver(node: "UpgradeNode") -> "tuple[UpgradeAction, ...]":
    """Return what lets the driver load that waits, or that is held off."""
    loads: list[UpgradeAction] = []
    if SAFE_LOAD_ANNOTATION in node.annotations:
        loads.append(Annotate(node.name, {SAFE_LOAD_ANNOTATION: None}))
    if is_held_off(node):
        loads.append(ResumeOperand(node.name, DRIVER_DEPLOY_LABEL))
    return tuple(loads)


def validate_again(node: "UpgradeNode") -> "tuple[UpgradeAction, ...]":
    """Return what makes validators check the driver that is there now: of a driver pod that restarted alone they know nothing."""
    return tuple(
        DeletePod(node.name, validator.namespace, validator.name, validator.uid)
        for validator in node.validators
        if validator.is_outdated and validator.uid is not None
    )


def give_back(node: "UpgradeNode") -> "tuple[UpgradeAction, ...]":
    """Return what puts the node into service again; its devices take pods last."""
    actions = list(bring_back_software(node))
    if is_cordoned_by_us(node):
        actions.append(Uncordon(node.name))
    if is_withheld(node):
        actions.append(ReturnUnits(node.name))
    return tuple(actions)

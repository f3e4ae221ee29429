"""Builders of nodes whose driver is upgraded, and one pass over them."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from api import driver_upgrade
from api.names import NodeName, PodUid
from operands.upgrade import facts
from operands.upgrade.actions import NodeUpgrade, ReportReason, UpgradeAction, WaitUntil
from operands.upgrade.cluster import CLUSTER_POLICY, OwnerUpgrade, plan_upgrades
from operands.upgrade.parameters import EvictionLimits, UpgradeParameters
from operands.upgrade.reasons import UpgradeReason
from operands.upgrade.record import UpgradeRecord

NOW = dt.datetime(2026, 5, 4, 3, 0, tzinfo=dt.UTC)
LONG_AGO = NOW - dt.timedelta(days=30)
CURRENT, OUTDATED, ORPHAN, UNKNOWN = (
    facts.DriverRevision.CURRENT,
    facts.DriverRevision.OUTDATED,
    facts.DriverRevision.ORPHAN,
    facts.DriverRevision.UNKNOWN,
)
READY = (facts.ValidatorPod(name="validator", is_ready=True),)
NOT_READY = (
    facts.ValidatorPod(name="validator", is_ready=False, message="cuda-validation failed"),
)
ON_NODE = (facts.HostProcess(4242, "nvtop"),)


def the_parameters(**fields: Any) -> UpgradeParameters:
    defaults: dict[str, Any] = {"auto_upgrade": True, "pod_deletion": EvictionLimits()}
    return UpgradeParameters(**defaults | fields)


def a_driver(revision: facts.DriverRevision = CURRENT, **fields: Any) -> facts.DriverPod:
    name = f"driver-{revision.value}"
    defaults: dict[str, Any] = {
        "namespace": "gpu",
        "name": name,
        "uid": PodUid(name),
        "is_ready": True,
    }
    return facts.DriverPod(revision=revision, **defaults | fields)


def a_pod(name: str = "train", **fields: Any) -> facts.PodOnNode:
    defaults = {"namespace": "team", "uid": PodUid(name), "uses": frozenset({facts.DriverUse.POOL})}
    return facts.PodOnNode(name=name, **defaults | fields)


def a_node(state: str = "", **fields: Any) -> facts.UpgradeNode:
    """Return a node with the newest driver, in a state for some seconds, with the marks that are named.

    Args:
        state: value of the state label.
        fields: those of a node, and `seconds` in the state, `record` (fields of it), and the marks `cordoned`,
            `withheld` and `released`.
    """
    labels: dict[str, str] = {driver_upgrade.UPGRADE_STATE_LABEL: state} if state else {}
    annotations: dict[str, str] = {}
    seconds, record = fields.pop("seconds", 0), fields.pop("record", {})
    if record is not None and state in {item.value for item in driver_upgrade.UpgradeState}:
        defaults = {"since": NOW - dt.timedelta(seconds=seconds), "attempt": 1} | record
        text = UpgradeRecord(driver_upgrade.UpgradeState(state), **defaults).encode()
        annotations[driver_upgrade.UPGRADE_RECORD_ANNOTATION] = text
    if fields.pop("cordoned", False):
        fields |= {"is_schedulable": False, "owns_cordon": True}
    if fields.pop("withheld", False):
        annotations[driver_upgrade.UNITS_WITHHELD_ANNOTATION] = driver_upgrade.DRIVER_UPGRADE
    if fields.pop("released", False):
        labels[driver_upgrade.AGENT_DEPLOY_LABEL] = driver_upgrade.PAUSED_FOR_UPGRADE
    labels |= fields.pop("labels", {})
    annotations |= fields.pop("annotations", {})
    defaults = {
        "name": NodeName("n1"),
        "driver_pods": (a_driver(),),
        "desired_revision": "rev-2",
        "validators": READY,
        "pods": (),
    }
    return facts.UpgradeNode(labels=labels, annotations=annotations, **defaults | fields)


def out_of_service(state: str, **fields: Any) -> facts.UpgradeNode:
    """Return a node that upgrades have cordoned, and whose units they withhold."""
    return a_node(state, **{"cordoned": True, "withheld": True} | fields)


def plan(
    nodes: Iterable[facts.UpgradeNode],
    parameters: UpgradeParameters | Mapping[str, UpgradeParameters] | None = None,
    *,
    now: dt.datetime = NOW,
    leading_since: dt.datetime = LONG_AGO,
) -> dict[str, OwnerUpgrade]:
    policies = (
        parameters
        if isinstance(parameters, Mapping)
        else {CLUSTER_POLICY: parameters or the_parameters()}
    )
    return plan_upgrades(policies, nodes, facts.UpgradeTimes(now=now, leading_since=leading_since))


def step(
    node: facts.UpgradeNode, parameters: UpgradeParameters | None = None, **times: Any
) -> NodeUpgrade:
    """Return the answer for the only node of a cluster."""
    (upgrade,) = plan([node], parameters, **times).values()
    (answer,) = upgrade.nodes
    return answer


def outcome(
    node: facts.UpgradeNode, parameters: UpgradeParameters | None = None
) -> tuple[str, UpgradeReason]:
    progress = step(node, parameters).progress
    return progress.state.value, progress.reason


def writes(answer: NodeUpgrade) -> list[UpgradeAction]:
    return [action for action in answer.actions if not isinstance(action, WaitUntil | ReportReason)]


def names(answer: NodeUpgrade) -> list[str]:
    return [type(write).__name__ for write in writes(answer)]

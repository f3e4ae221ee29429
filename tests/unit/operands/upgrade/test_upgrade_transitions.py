"""Every transition of the state machine: a node in a state, what is on it, and the state that follows, with its reason."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from api import driver_upgrade
from api.names import PoolName
from api.selector_text import parse_label_selector
from operands.upgrade.actions import (
    Annotate,
    Cordon,
    DeletePod,
    EvictPod,
    PauseOperand,
    ReleaseAgent,
    ReturnAgent,
    ReturnUnits,
    SetState,
    Uncordon,
    UpgradeAction,
    WithholdUnits,
)
from operands.upgrade.facts import EvictionAnswer, PodOwner, UpgradeNode
from operands.upgrade.parameters import AwaitedPods, EvictionLimits, NodeLimit
from operands.upgrade.reasons import UpgradeReason
from tests.support.driver_upgrades import (
    NOT_READY,
    ON_NODE,
    ORPHAN,
    OUTDATED,
    READY,
    UNKNOWN,
    a_driver,
    a_node,
    a_pod,
    out_of_service,
    outcome,
    step,
    the_parameters,
    writes,
)

OLD = (a_driver(OUTDATED),)
LOADING = (a_driver(is_ready=False),)
REQUESTED = {driver_upgrade.UPGRADE_REQUESTED_ANNOTATION: "true"}
SAFE_LOAD = {driver_upgrade.SAFE_LOAD_ANNOTATION: "true"}
SKIP = {driver_upgrade.UPGRADE_SKIP_LABEL: "true"}
HELD_OFF = {driver_upgrade.DRIVER_DEPLOY_LABEL: driver_upgrade.PAUSED_FOR_UPGRADE}
JOBS = the_parameters(awaited=AwaitedPods(selector=parse_label_selector("app=train"), limit_s=60))
FOR_EVER = the_parameters(awaited=AwaitedPods(selector=parse_label_selector("app=train")))
POOLS = the_parameters(awaited=AwaitedPods(pools=frozenset({PoolName("a100")})))
NO_DELETION = the_parameters(pod_deletion=None)
DRAIN = the_parameters(drain=EvictionLimits())
A_JOB = a_pod(labels={"app": "train"})
HELD = a_pod(owner=PodOwner.NONE)
STATIC = a_pod("static", owner=PodOwner.MIRROR)
LATE_AGENT = a_pod("agent", is_agent=True, is_ready=False)
REFUSED = a_pod(eviction=EvictionAnswer.REFUSED, eviction_message="web allows 0 of 3")
NO_SLOT = the_parameters(max_unavailable=NodeLimit(0))
R = UpgradeReason


def required(**fields: Any) -> UpgradeNode:
    return a_node("upgrade-required", **{"driver_pods": OLD} | fields)


def cordoning(**fields: Any) -> UpgradeNode:
    return a_node("cordon-required", **{"driver_pods": OLD, "withheld": True} | fields)


def waiting(**fields: Any) -> UpgradeNode:
    return out_of_service("wait-for-jobs-required", **{"driver_pods": OLD} | fields)


def deleting(**fields: Any) -> UpgradeNode:
    return out_of_service("pod-deletion-required", **{"driver_pods": OLD} | fields)


def draining(**fields: Any) -> UpgradeNode:
    return out_of_service("drain-required", **{"driver_pods": OLD} | fields)


def restarting(**fields: Any) -> UpgradeNode:
    defaults = {"driver_pods": OLD, "released": True}
    return out_of_service("pod-restart-required", **defaults | fields)


def validating(**fields: Any) -> UpgradeNode:
    return out_of_service("validation-required", **fields)


def failed(**fields: Any) -> UpgradeNode:
    defaults = {"record": {"reason": R.DRIVER_HELD, "message": "held", "revision": "rev-2"}}
    return a_node("upgrade-failed", **defaults | fields)


TRANSITIONS = [
    # Not examined, and done
    (a_node(), None, "upgrade-done", R.UP_TO_DATE),
    (a_node(driver_pods=LOADING), None, "upgrade-done", R.UP_TO_DATE),
    (a_node(driver_pods=OLD), None, "upgrade-required", R.OUTDATED),
    (a_node(annotations=SAFE_LOAD), None, "upgrade-required", R.SAFE_LOAD),
    (a_node(annotations=REQUESTED), None, "upgrade-required", R.REQUESTED),
    (a_node(driver_pods=(a_driver(ORPHAN),)), None, "upgrade-done", R.ORPHAN),
    (
        a_node(driver_pods=(a_driver(ORPHAN),), annotations=REQUESTED),
        None,
        "upgrade-required",
        R.REQUESTED,
    ),
    (a_node(driver_pods=(a_driver(UNKNOWN),)), None, "", R.REVISION_UNKNOWN),
    (a_node(driver_pods=()), None, "", R.NO_DRIVER_POD),
    (a_node(driver_pods=(a_driver(is_scheduled=False),)), None, "", R.NO_DRIVER_POD),
    (a_node("upgrade-done"), None, "upgrade-done", R.UP_TO_DATE),
    (a_node("upgrade-done", driver_pods=OLD), None, "upgrade-required", R.OUTDATED),
    (a_node("upgrade-done", driver_pods=()), None, "upgrade-done", R.NO_DRIVER_POD),
    (out_of_service("upgrade-done"), None, "upgrade-done", R.RECOVERED),
    (out_of_service(""), None, "upgrade-done", R.RECOVERED),
    (out_of_service("", driver_pods=LOADING), None, "upgrade-failed", R.LABEL_LOST),
    (out_of_service("upgrade-done", validators=()), None, "upgrade-failed", R.LABEL_LOST),
    (out_of_service("", driver_pods=()), None, "upgrade-failed", R.LABEL_LOST),
    (out_of_service("", driver_pods=OLD), None, "upgrade-required", R.OUTDATED),
    # upgrade-required
    (required(), None, "cordon-required", R.STARTED),
    (required(), NO_SLOT, "upgrade-required", R.MAX_UNAVAILABLE),
    (required(is_schedulable=False), NO_SLOT, "cordon-required", R.STARTED),
    (required(labels=SKIP), None, "upgrade-required", R.SKIPPED),
    (required(driver_obstacle="a taint"), None, "upgrade-required", R.DRIVER_KEPT_AWAY),
    (
        out_of_service("upgrade-required", driver_pods=OLD, driver_obstacle="a taint"),
        None,
        "upgrade-required",
        R.DRIVER_KEPT_AWAY,
    ),
    (
        required(driver_pods=(), labels=HELD_OFF, driver_obstacle="a taint"),
        None,
        "upgrade-required",
        R.DRIVER_KEPT_AWAY,
    ),
    (required(is_ready=False), None, "upgrade-required", R.NOT_READY),
    (required(is_leaving=True), None, "upgrade-required", R.LEAVING),
    (required(driver_pods=()), None, "upgrade-required", R.NO_DRIVER_POD),
    (
        required(driver_pods=(a_driver(OUTDATED, is_scheduled=False),)),
        None,
        "upgrade-required",
        R.NO_DRIVER_POD,
    ),
    (required(driver_pods=(a_driver(UNKNOWN),)), None, "upgrade-required", R.REVISION_UNKNOWN),
    (required(driver_pods=(a_driver(),)), None, "upgrade-done", R.NOTHING_TO_UPGRADE),
    (
        out_of_service("upgrade-required", driver_pods=LOADING),
        None,
        "upgrade-failed",
        R.FAILED,
    ),
    (required(driver_pods=(a_driver(ORPHAN),)), None, "cordon-required", R.STARTED),
    (required(annotations=SAFE_LOAD), None, "cordon-required", R.STARTED),
    (
        required(driver_pods=(a_driver(OUTDATED, config_digest="d"),), desired_digest="d"),
        None,
        "pod-restart-required",
        R.RESTART_ONLY,
    ),
    (
        required(driver_pods=(a_driver(OUTDATED, config_digest="c"),), desired_digest="d"),
        None,
        "cordon-required",
        R.STARTED,
    ),
    (
        required(
            driver_pods=(a_driver(OUTDATED, config_digest="d"),),
            desired_digest="d",
            annotations=REQUESTED,
        ),
        None,
        "cordon-required",
        R.STARTED,
    ),
    (
        required(
            driver_pods=(a_driver(OUTDATED, config_digest="d"),),
            desired_digest="d",
            annotations=SAFE_LOAD,
        ),
        None,
        "cordon-required",
        R.STARTED,
    ),
    # cordon-required
    (cordoning(), None, "wait-for-jobs-required", R.CORDONING),
    (cordoning(seconds=300), None, "upgrade-failed", R.NOT_CORDONED),
    (cordoning(seconds=300, cordoned=True), None, "wait-for-jobs-required", R.CORDONING),
    (cordoning(labels=SKIP), None, "upgrade-required", R.SKIPPED),
    (cordoning(driver_pods=(a_driver(),)), None, "pod-restart-required", R.NOTHING_TO_UPGRADE),
    # wait-for-jobs-required
    (waiting(pods=(A_JOB,)), None, "pod-deletion-required", R.PODS_ENDED),
    (waiting(), JOBS, "pod-deletion-required", R.PODS_ENDED),
    (waiting(pods=(A_JOB,)), JOBS, "wait-for-jobs-required", R.WAITING_FOR_PODS),
    (waiting(pods=(A_JOB,), seconds=60), JOBS, "pod-deletion-required", R.WAIT_OVER),
    (
        waiting(pods=(A_JOB,), seconds=10**8),
        FOR_EVER,
        "wait-for-jobs-required",
        R.WAITING_FOR_PODS,
    ),
    (
        waiting(pods=(a_pod(labels={"app": "train"}, is_active=False),)),
        JOBS,
        "pod-deletion-required",
        R.PODS_ENDED,
    ),
    (
        waiting(pods=(a_pod(pools=frozenset({"a100"})),)),
        POOLS,
        "wait-for-jobs-required",
        R.WAITING_FOR_PODS,
    ),
    (
        waiting(pods=(a_pod(pools=frozenset({"h100"})),)),
        POOLS,
        "pod-deletion-required",
        R.PODS_ENDED,
    ),
    (waiting(), NO_DELETION, "drain-required", R.POD_DELETION_OFF),
    (waiting(labels=SKIP), JOBS, "upgrade-required", R.SKIPPED),
    (
        waiting(driver_pods=(a_driver(),)),
        JOBS,
        "pod-restart-required",
        R.NOTHING_TO_UPGRADE,
    ),
    # pod-deletion-required
    (deleting(), None, "pod-restart-required", R.PODS_GONE),
    (deleting(pods=(a_pod(uses=frozenset()),)), None, "pod-restart-required", R.PODS_GONE),
    (deleting(pods=(a_pod(),)), None, "pod-deletion-required", R.EVICTING),
    (deleting(pods=(REFUSED,)), None, "pod-deletion-required", R.EVICTION_REFUSED),
    (
        deleting(pods=(a_pod(is_terminating=True),)),
        None,
        "pod-deletion-required",
        R.PODS_TERMINATING,
    ),
    (deleting(pods=(HELD,)), None, "upgrade-failed", R.DRIVER_HELD),
    (deleting(pods=(HELD,)), DRAIN, "drain-required", R.DRIVER_HELD),
    (deleting(processes=ON_NODE), None, "upgrade-failed", R.DRIVER_HELD),
    # A drain would empty the node in vain.
    (deleting(processes=ON_NODE), DRAIN, "upgrade-failed", R.DRIVER_HELD),
    (deleting(pods=(HELD, STATIC)), DRAIN, "upgrade-failed", R.DRIVER_HELD),
    (deleting(pods=(REFUSED,), seconds=300), None, "upgrade-failed", R.EVICTION_TIMED_OUT),
    (deleting(pods=(REFUSED,), seconds=300), DRAIN, "drain-required", R.EVICTION_TIMED_OUT),
    (
        deleting(pods=(REFUSED,), seconds=10**8),
        the_parameters(pod_deletion=EvictionLimits(limit_s=0)),
        "pod-deletion-required",
        R.EVICTION_REFUSED,
    ),
    (deleting(pods=(a_pod(),)), NO_DELETION, "drain-required", R.POD_DELETION_OFF),
    (deleting(labels=SKIP, pods=(a_pod(),)), None, "upgrade-required", R.SKIPPED),
    (
        deleting(driver_pods=LOADING, pods=(a_pod(),)),
        None,
        "pod-restart-required",
        R.NOTHING_TO_UPGRADE,
    ),
    # drain-required
    (draining(pods=(a_pod(),)), None, "pod-restart-required", R.DRAIN_OFF),
    (draining(), DRAIN, "pod-restart-required", R.PODS_GONE),
    (draining(pods=(a_pod(uses=frozenset()),)), DRAIN, "drain-required", R.EVICTING),
    (draining(pods=(REFUSED,)), DRAIN, "drain-required", R.EVICTION_REFUSED),
    (draining(pods=(HELD,)), DRAIN, "upgrade-failed", R.DRAIN_BLOCKED),
    (draining(pods=(REFUSED,), seconds=300), DRAIN, "upgrade-failed", R.DRAIN_TIMED_OUT),
    (draining(pods=(a_pod(),), processes=ON_NODE), DRAIN, "upgrade-failed", R.DRIVER_HELD),
    (draining(pods=(a_pod(), STATIC)), DRAIN, "upgrade-failed", R.DRIVER_HELD),
    (draining(labels=SKIP, pods=(a_pod(),)), DRAIN, "upgrade-required", R.SKIPPED),
    # pod-restart-required
    (restarting(), None, "pod-restart-required", R.RESTARTING),
    (restarting(driver_pods=(a_driver(ORPHAN),)), None, "pod-restart-required", R.RESTARTING),
    (restarting(released=False), None, "pod-restart-required", R.AGENT_LEAVES),
    (
        restarting(pods=(a_pod("agent", is_agent=True),)),
        None,
        "pod-restart-required",
        R.AGENT_LEAVES,
    ),
    (
        restarting(pods=(a_pod("dcgm", deploy_label="nvidia.com/gpu.deploy.dcgm"),)),
        None,
        "pod-restart-required",
        R.OPERANDS_LEAVE,
    ),
    (restarting(pods=(a_pod(),)), None, "pod-restart-required", R.EVICTING),
    (restarting(pods=(a_pod(),)), NO_DELETION, "pod-restart-required", R.PODS_TERMINATING),
    (restarting(pods=(HELD,)), None, "upgrade-failed", R.DRIVER_HELD),
    (
        restarting(
            driver_pods=(a_driver(OUTDATED, config_digest="d"),),
            desired_digest="d",
            released=False,
            pods=(a_pod(),),
        ),
        None,
        "pod-restart-required",
        R.RESTARTING,
    ),
    (
        restarting(record={"reason": R.RESTART_ONLY}, pods=(a_pod(),)),
        None,
        "cordon-required",
        R.STARTED,
    ),
    (
        restarting(driver_pods=(a_driver(OUTDATED, is_terminating=True),)),
        None,
        "pod-restart-required",
        R.DRIVER_TERMINATING,
    ),
    (restarting(driver_pods=()), None, "pod-restart-required", R.NO_DRIVER_POD),
    (
        restarting(driver_pods=(a_driver(is_ready=False, is_scheduled=False),)),
        None,
        "pod-restart-required",
        R.NO_DRIVER_POD,
    ),
    (restarting(driver_pods=LOADING), None, "pod-restart-required", R.DRIVER_STARTING),
    (
        restarting(driver_pods=LOADING, annotations=SAFE_LOAD),
        None,
        "pod-restart-required",
        R.DRIVER_STARTING,
    ),
    (
        restarting(driver_pods=LOADING, annotations=SAFE_LOAD, released=False),
        None,
        "pod-restart-required",
        R.AGENT_LEAVES,
    ),
    (
        restarting(driver_pods=(a_driver(is_ready=False, restarts=10),)),
        None,
        "pod-restart-required",
        R.DRIVER_STARTING,
    ),
    (
        restarting(driver_pods=(a_driver(is_ready=False, restarts=11),)),
        None,
        "upgrade-failed",
        R.DRIVER_CRASHES,
    ),
    (
        restarting(driver_pods=(a_driver(UNKNOWN),)),
        None,
        "pod-restart-required",
        R.REVISION_UNKNOWN,
    ),
    (
        restarting(driver_pods=(a_driver(), a_driver(UNKNOWN))),
        None,
        "pod-restart-required",
        R.REVISION_UNKNOWN,
    ),
    (
        restarting(driver_pods=(a_driver(), a_driver(OUTDATED, is_terminating=True))),
        None,
        "pod-restart-required",
        R.DRIVER_TERMINATING,
    ),
    (
        restarting(driver_pods=(a_driver(), a_driver(ORPHAN))),
        None,
        "pod-restart-required",
        R.RESTARTING,
    ),
    (restarting(driver_pods=LOADING, seconds=1800), None, "upgrade-failed", R.RESTART_TIMED_OUT),
    (restarting(pods=(REFUSED,), seconds=1800), None, "upgrade-failed", R.RESTART_TIMED_OUT),
    (restarting(driver_pods=(), seconds=1800), None, "upgrade-failed", R.RESTART_TIMED_OUT),
    (
        restarting(driver_pods=(a_driver(),), seconds=1800),
        None,
        "validation-required",
        R.DRIVER_READY,
    ),
    (restarting(driver_pods=(a_driver(),)), None, "validation-required", R.DRIVER_READY),
    (
        restarting(driver_pods=(a_driver(),)),
        the_parameters(has_validator=False),
        "uncordon-required",
        R.VALIDATED,
    ),
    # validation-required
    (validating(), None, "uncordon-required", R.VALIDATED),
    (validating(cordoned=False, is_schedulable=False), None, "upgrade-done", R.UPGRADED),
    (validating(validators=NOT_READY), None, "validation-required", R.VALIDATING),
    (validating(validators=()), None, "validation-required", R.NO_VALIDATOR),
    (
        validating(driver_pods=(a_driver(), a_driver(UNKNOWN))),
        None,
        "validation-required",
        R.DRIVER_STARTING,
    ),
    (validating(validators=READY + NOT_READY), None, "validation-required", R.VALIDATING),
    (validating(pods=(LATE_AGENT,)), None, "validation-required", R.VALIDATING),
    (
        validating(pods=(LATE_AGENT,), validators=()),
        the_parameters(has_validator=False),
        "validation-required",
        R.VALIDATING,
    ),
    (validating(pods=(a_pod(is_ready=False),)), None, "uncordon-required", R.VALIDATED),
    (
        validating(pods=(LATE_AGENT,), seconds=600),
        None,
        "upgrade-failed",
        R.VALIDATION_TIMED_OUT,
    ),
    (validating(driver_pods=LOADING), None, "validation-required", R.DRIVER_STARTING),
    (validating(annotations=SAFE_LOAD), None, "pod-restart-required", R.OUTDATED),
    (validating(driver_pods=OLD), None, "pod-restart-required", R.OUTDATED),
    (
        validating(validators=NOT_READY, seconds=600),
        None,
        "upgrade-failed",
        R.VALIDATION_TIMED_OUT,
    ),
    (validating(validators=(), seconds=600), None, "upgrade-failed", R.VALIDATION_TIMED_OUT),
    (validating(seconds=600), None, "uncordon-required", R.VALIDATED),
    # uncordon-required
    (out_of_service("uncordon-required"), None, "upgrade-done", R.UPGRADED),
    (a_node("uncordon-required"), None, "upgrade-done", R.UPGRADED),
    (
        out_of_service("uncordon-required", pods=(LATE_AGENT,)),
        None,
        "validation-required",
        R.VALIDATING,
    ),
    (
        out_of_service("uncordon-required", driver_pods=LOADING),
        None,
        "validation-required",
        R.VALIDATING,
    ),
    # upgrade-failed
    (failed(driver_pods=LOADING), None, "upgrade-failed", R.DRIVER_HELD),
    (failed(validators=NOT_READY), None, "upgrade-failed", R.DRIVER_HELD),
    (failed(driver_pods=(a_driver(UNKNOWN),)), None, "upgrade-failed", R.DRIVER_HELD),
    (failed(), None, "upgrade-done", R.RECOVERED),
    (failed(driver_pods=OLD), None, "upgrade-failed", R.DRIVER_HELD),
    (failed(driver_pods=OLD, seconds=600), None, "upgrade-required", R.DRIVER_HELD),
    (failed(driver_pods=OLD, seconds=600, labels=SKIP), None, "upgrade-failed", R.DRIVER_HELD),
    (failed(driver_pods=OLD, desired_revision="rev-3"), None, "upgrade-required", R.OUTDATED),
    (failed(driver_pods=LOADING, annotations=REQUESTED), None, "upgrade-required", R.REQUESTED),
    (a_node("upgrade-failed", driver_pods=LOADING), None, "upgrade-failed", R.FAILED),
    # An external maintenance operator has the node
    (
        a_node("node-maintenance-required", driver_pods=OLD),
        None,
        "node-maintenance-required",
        R.REQUESTOR_MODE,
    ),
    (
        a_node("post-maintenance-required", driver_pods=OLD),
        None,
        "post-maintenance-required",
        R.REQUESTOR_MODE,
    ),
    (
        required(annotations={driver_upgrade.REQUESTOR_MODE_ANNOTATION: "true"}),
        None,
        "upgrade-required",
        R.REQUESTOR_MODE,
    ),
    (
        out_of_service(
            "uncordon-required", annotations={driver_upgrade.REQUESTOR_MODE_ANNOTATION: "true"}
        ),
        None,
        "uncordon-required",
        R.REQUESTOR_MODE,
    ),
    # No policy
    (a_node("upgrade-done"), the_parameters(auto_upgrade=False), "", R.AUTO_UPGRADE_OFF),
    (waiting(pods=(A_JOB,)), the_parameters(auto_upgrade=False), "", R.AUTO_UPGRADE_OFF),
    (
        restarting(driver_pods=LOADING),
        the_parameters(auto_upgrade=False),
        "pod-restart-required",
        R.AUTO_UPGRADE_OFF,
    ),
    (validating(validators=()), the_parameters(auto_upgrade=False), "", R.AUTO_UPGRADE_OFF),
    (restarting(driver_pods=(), is_selected=False), None, "", R.UNMANAGED),
]


@pytest.mark.parametrize(
    ("node", "parameters", "expected", "reason"),
    [pytest.param(*row, id=f"{number}-{row[3].value}") for number, row in enumerate(TRANSITIONS)],
)
def test_a_state_is_followed_by(node, parameters, expected, reason):
    assert outcome(node, parameters) == (expected, reason)


def test_the_table_has_every_state_and_every_reason():
    assert {row[2] for row in TRANSITIONS} == {state.value for state in driver_upgrade.UpgradeState}
    elsewhere = {
        R.MAX_PARALLEL,  # test_upgrade_slots
        R.POLICY_REFUSED,
        R.PODS_UNREAD,  # test_upgrade_actions
    }
    assert {row[3] for row in TRANSITIONS} | elsewhere == set(UpgradeReason)


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: row[3].value)
def test_whatever_lasts_has_a_reason_in_words_and_its_time(row):
    node, parameters, *_ = row
    progress = step(node, parameters).progress
    assert progress.message
    entry = progress.entry()
    assert (entry.reason, entry.message) == (progress.reason.value, progress.message)
    assert entry.state == progress.state.value
    if progress.state not in {
        driver_upgrade.UpgradeState.UNKNOWN,
        driver_upgrade.UpgradeState.UPGRADE_DONE,
    }:
        assert progress.since is not None
        assert progress.since <= dt.datetime.fromisoformat("2026-05-04T03:00:00+00:00")


def carried_out(node: UpgradeNode, action: UpgradeAction) -> UpgradeNode:
    """Return the node with the effect of an action."""
    labels, annotations = dict(node.labels), dict(node.annotations)
    match action:
        case WithholdUnits():
            annotations[driver_upgrade.UNITS_WITHHELD_ANNOTATION] = driver_upgrade.DRIVER_UPGRADE
        case ReturnUnits():
            del annotations[driver_upgrade.UNITS_WITHHELD_ANNOTATION]
        case Cordon():
            return replace(node, is_schedulable=False, owns_cordon=True)
        case Uncordon():
            return replace(node, is_schedulable=True, owns_cordon=False)
        case ReleaseAgent():
            labels[driver_upgrade.AGENT_DEPLOY_LABEL] = driver_upgrade.PAUSED_FOR_UPGRADE
        case ReturnAgent():
            del labels[driver_upgrade.AGENT_DEPLOY_LABEL]
        case Annotate(annotations=changes):
            annotations.update({key: value for key, value in changes.items() if value is not None})
        case _:
            raise AssertionError(action)
    return replace(node, labels=labels, annotations=annotations)


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: row[3].value)
def test_a_pass_that_ends_after_any_action_is_gone_on_with_from_there(row):
    node, parameters, expected, _ = row
    actions = writes(step(node, parameters))
    before = [item for item in actions if not isinstance(item, SetState)]
    for number, action in enumerate(actions[:-1], 1):
        if isinstance(action, EvictPod | DeletePod | PauseOperand):
            break  # beside the node; `test_upgrade_many_steps` kills leaders there, too
        node = carried_out(node, action)
        answer = step(node, parameters)
        assert [write for write in writes(answer) if not isinstance(write, SetState)] == before[
            number:
        ]
        assert answer.progress.state.value == expected


def test_a_node_that_was_cordoned_at_the_start_is_marked_as_upstream_marks_it():
    answer = step(a_node(driver_pods=OLD, is_schedulable=False))
    (change,) = (action for action in answer.actions if isinstance(action, SetState))
    assert change.annotations[driver_upgrade.INITIALLY_UNSCHEDULABLE_ANNOTATION] == "true"


@pytest.mark.parametrize("state", [cordoning, waiting, deleting, draining, restarting])
def test_a_node_whose_driver_pod_would_not_come_back_returns_to_service(state):
    answer = step(state(driver_obstacle="no toleration of taint a:NoSchedule", pods=(A_JOB,)), JOBS)
    assert answer.progress.state is driver_upgrade.UpgradeState.UPGRADE_REQUIRED
    assert answer.progress.reason is R.DRIVER_KEPT_AWAY
    assert "taint a:NoSchedule" in answer.progress.message
    assert answer.progress.attempt == 1
    done = {type(action) for action in writes(answer)}
    assert ReturnUnits in done
    assert done.isdisjoint({EvictPod, DeletePod, Cordon})


def test_a_driver_pod_that_is_gone_when_the_taint_comes_is_missed_by_the_taints_name():
    defaults: dict[str, Any] = {
        "driver_pods": (),
        "driver_obstacle": "no toleration of taint a:NoSchedule",
    }
    waiting_ = step(restarting(**defaults)).progress
    assert waiting_.reason is R.NO_DRIVER_POD
    late = step(restarting(seconds=1800, **defaults)).progress
    assert late.reason is R.RESTART_TIMED_OUT
    for progress in (waiting_, late, step(a_node(**defaults)).progress):
        assert "taint a:NoSchedule" in progress.message

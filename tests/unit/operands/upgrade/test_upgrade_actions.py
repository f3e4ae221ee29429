"""What is done on a node, in which order: taken out of service, emptied, restarted, given back."""

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    DRAIN_SKIP_LABEL,
    DRIVER_DEPLOY_LABEL,
    INITIALLY_UNSCHEDULABLE_ANNOTATION,
    PAUSED_FOR_UPGRADE,
    SAFE_LOAD_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_SKIP_LABEL,
    UPGRADE_STATE_LABEL,
    VALIDATION_START_ANNOTATION,
    WAIT_START_ANNOTATION,
    UpgradeState,
)
from api.names import NodeName, PodUid
from api.selector_text import parse_label_selector
from operands.upgrade.actions import (
    Annotate,
    DeletePod,
    EvictPod,
    NodeUpgrade,
    PauseOperand,
    ReportReason,
    ResumeOperand,
    SetState,
    WaitUntil,
)
from operands.upgrade.facts import (
    DriverUse,
    EvictionAnswer,
    PodOwner,
    UpgradeNode,
    ValidatorPod,
    uses_of,
)
from operands.upgrade.parameters import AwaitedPods, EvictionLimits
from operands.upgrade.reasons import UpgradeReason
from tests.support.driver_upgrades import (
    NOT_READY,
    NOW,
    ON_NODE,
    ORPHAN,
    OUTDATED,
    a_driver,
    a_node,
    a_pod,
    names,
    out_of_service,
    step,
    the_parameters,
    writes,
)

OLD = (a_driver(OUTDATED),)
LOADING = (a_driver(is_ready=False),)
DCGM = "nvidia.com/gpu.deploy.dcgm"
EXPORTER = "nvidia.com/gpu.deploy.dcgm-exporter"
A_DAEMON_POD = a_pod("monitor", owner=PodOwner.DAEMON_SET, uses=frozenset())


def state_change(answer: NodeUpgrade) -> SetState:
    (found,) = (action for action in answer.actions if isinstance(action, SetState))
    return found


def evicted(answer: NodeUpgrade) -> list[str]:
    return [action.name for action in answer.actions if isinstance(action, EvictPod)]


def deleting(*pods: Any, **fields: Any) -> UpgradeNode:
    defaults = {"driver_pods": OLD, "pods": pods}
    return out_of_service("pod-deletion-required", **defaults | fields)


def restarting(**fields: Any) -> UpgradeNode:
    defaults = {"driver_pods": OLD, "released": True}
    return out_of_service("pod-restart-required", **defaults | fields)


# Out of service


def test_units_are_withheld_before_anything_else_happens_to_a_chosen_node():
    answer = step(a_node("upgrade-required", driver_pods=OLD))
    assert names(answer) == ["WithholdUnits", "SetState"]


def test_the_cordon_is_written_before_the_state_that_relies_on_it():
    node = a_node("cordon-required", driver_pods=OLD, withheld=True)
    assert names(step(node)) == ["Cordon", "SetState"]
    assert names(step(a_node("cordon-required", driver_pods=OLD))) == [
        "WithholdUnits",
        "Cordon",
        "SetState",
    ]


def test_a_node_that_only_restarts_its_driver_pod_is_cordoned_as_upstream_does():
    driver = a_driver(OUTDATED, config_digest="d")
    answer = step(a_node("upgrade-required", driver_pods=(driver,), desired_digest="d"))
    assert names(answer) == ["WithholdUnits", "Cordon", "SetState"]


@pytest.mark.parametrize(
    "state",
    [
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "pod-restart-required",
        "validation-required",
    ],
)
def test_a_node_that_somebody_uncordons_in_the_middle_is_cordoned_again(state):
    limits = the_parameters(
        awaited=AwaitedPods(selector=parse_label_selector("app")), drain=EvictionLimits()
    )
    node = a_node(
        state,
        driver_pods=LOADING if state == "validation-required" else OLD,
        pods=(a_pod(labels={"app": "train"}),),
    )
    assert names(step(node, limits))[:2] == ["WithholdUnits", "Cordon"]


@pytest.mark.parametrize("state", ["validation-required", "upgrade-failed"])
def test_a_validator_that_passed_with_the_driver_before_checks_again(state: str):
    outdated = ValidatorPod(
        name="validator", namespace="gpu", uid=PodUid("v1"), is_ready=False, is_outdated=True
    )
    node = a_node(state, validators=(outdated,), cordoned=True, withheld=True)
    deleted = [action for action in step(node).actions if isinstance(action, DeletePod)]
    assert deleted == [DeletePod(NodeName("n1"), "gpu", "validator", PodUid("v1"))]
    starting = a_node(state, validators=(outdated,), driver_pods=LOADING)
    assert "DeletePod" not in names(step(starting))


def test_a_node_that_its_owner_cordoned_and_then_uncordoned_is_left_uncordoned():
    node = a_node(
        "pod-deletion-required",
        driver_pods=OLD,
        withheld=True,
        pods=(a_pod(),),
        annotations={INITIALLY_UNSCHEDULABLE_ANNOTATION: "true"},
    )
    assert names(step(node)) == ["EvictPod"]


def test_the_marks_of_others_are_renewed_when_the_node_starts():
    cordoned = a_node("upgrade-required", driver_pods=OLD, is_schedulable=False)
    change = state_change(step(cordoned))
    assert change.annotations[INITIALLY_UNSCHEDULABLE_ANNOTATION] == "true"
    uncordoned = a_node(
        "upgrade-required",
        driver_pods=OLD,
        annotations={INITIALLY_UNSCHEDULABLE_ANNOTATION: "true"},
    )
    assert state_change(step(uncordoned)).annotations[INITIALLY_UNSCHEDULABLE_ANNOTATION] is None


# Given back


def test_everything_of_ours_is_given_back_and_units_come_last():
    node = out_of_service(
        "uncordon-required",
        released=True,
        labels={DCGM: PAUSED_FOR_UPGRADE, EXPORTER: "paused-for-mig-change"},
    )
    answer = step(node)
    assert names(answer) == [
        "ResumeOperand",
        "ReturnAgent",
        "Uncordon",
        "ReturnUnits",
        "SetState",
    ]
    assert writes(answer)[0] == ResumeOperand(node.name, DCGM)


@pytest.mark.parametrize("marks", [{}, {"withheld": True}, {"cordoned": True}, {"released": True}])
def test_what_a_killed_leader_left_is_given_back(marks):
    left = {"withheld": "ReturnUnits", "cordoned": "Uncordon", "released": "ReturnAgent"}
    expected = [left[mark] for mark in marks]
    assert names(step(a_node("uncordon-required", **marks))) == [*expected, "SetState"]


def test_a_cordon_of_another_client_stays_and_the_reason_says_so():
    node = a_node("validation-required", is_schedulable=False, withheld=True)
    answer = step(node)
    assert names(answer) == ["ReturnUnits", "SetState"]
    assert answer.progress.message.endswith(
        "another client cordoned the node: uncordon it to use it"
    )


def test_agent_and_operands_come_back_before_validation_since_the_validator_is_among_them():
    node = restarting(driver_pods=(a_driver(),), labels={DCGM: PAUSED_FOR_UPGRADE})
    assert names(step(node)) == ["ResumeOperand", "ReturnAgent", "SetState"]
    late = out_of_service("validation-required", released=True, validators=())
    assert names(step(late)) == ["ReturnAgent"]


def test_a_failed_node_with_its_old_driver_returns_to_service():
    node = out_of_service("upgrade-failed", driver_pods=OLD, released=True)
    assert names(step(node)) == ["ReturnAgent", "Uncordon", "ReturnUnits"]


@pytest.mark.parametrize(
    "fields",
    [
        {"driver_pods": LOADING},
        {"driver_pods": ()},
        {"driver_pods": (a_driver(OUTDATED, is_ready=False),)},
        {"driver_pods": (a_driver(OUTDATED, is_terminating=True),)},
        {"driver_pods": OLD, "annotations": {SAFE_LOAD_ANNOTATION: "true"}},
        {"validators": NOT_READY},
    ],
)
def test_a_failed_node_without_a_driver_that_works_stays_out_of_service(fields):
    assert names(step(out_of_service("upgrade-failed", **fields))) == []


@pytest.mark.parametrize("state", ["upgrade-failed", "upgrade-required", "pod-restart-required"])
@pytest.mark.parametrize("has_caches", [True, False])
def test_the_agent_comes_back_for_pods_that_end_with_caches_mounted_where_no_deadline_brings_it(
    state: str, has_caches: bool
):
    ending = a_pod(uses=frozenset(), is_terminating=True, mounts_caches=has_caches)
    answer = step(out_of_service(state, driver_pods=(), released=True, pods=(ending,)))
    is_expected = has_caches and state != "pod-restart-required"
    assert names(answer).count("ReturnAgent") == is_expected
    if state == "pod-restart-required":
        assert answer.progress.deadline is not None


def test_a_failed_node_whose_new_driver_is_ready_gets_its_validator_back():
    node = out_of_service("upgrade-failed", released=True, validators=())
    assert names(step(node)) == ["ReturnAgent"]


@pytest.mark.parametrize("state", [state.value for state in UpgradeState])
def test_pods_that_are_not_read_change_nothing_on_a_node_that_is_out_of_service(state: str):
    """The driver is ready and validated; whether the node agent is, nothing says."""
    if UpgradeState(state).is_external:
        return
    for parameters in (
        the_parameters(),
        the_parameters(has_validator=False),
        the_parameters(auto_upgrade=False),
    ):
        answer = step(out_of_service(state, pods=None), parameters)
        assert answer.progress.state is UpgradeState(state)
        assert answer.progress.reason is UpgradeReason.PODS_UNREAD
        assert {name for name in names(answer) if name != "Annotate"} == set()


@pytest.mark.parametrize("state", ["upgrade-done", "validation-required", "upgrade-failed"])
def test_without_auto_upgrade_a_node_returns_once_its_agent_is_ready(state: str):
    off = the_parameters(auto_upgrade=False)
    released = out_of_service(state, released=True)
    assert names(step(released, off)) == ["ReturnAgent"]
    agent = a_pod("agent", is_agent=True, is_ready=False)
    answer = step(out_of_service(state, pods=(agent,)), off)
    assert names(answer) == []
    assert "team/agent" in answer.progress.message
    ready = out_of_service(state, pods=(replace(agent, is_ready=True),))
    assert names(step(ready, off)) == ["Uncordon", "ReturnUnits", "SetState"]


def test_a_node_that_is_not_chosen_any_more_is_given_back():
    node = out_of_service("upgrade-required", driver_pods=OLD, labels={UPGRADE_SKIP_LABEL: "true"})
    assert names(step(node)) == ["Uncordon", "ReturnUnits"]


def test_a_node_waiting_for_another_attempt_without_a_driver_stays_out_of_service():
    node = out_of_service(
        "upgrade-required",
        driver_pods=(a_driver(OUTDATED, is_ready=False),),
        labels={UPGRADE_SKIP_LABEL: "true"},
    )
    assert names(step(node)) == []


def test_skipping_a_node_ends_its_upgrade_before_the_driver_is_touched():
    answer = step(deleting(a_pod(), labels={UPGRADE_SKIP_LABEL: "true"}))
    assert names(answer) == ["Uncordon", "ReturnUnits", "SetState"]
    assert evicted(answer) == []


# Emptied


def test_pods_are_evicted_lowest_priority_first():
    answer = step(deleting(a_pod("b"), a_pod("c", priority=10), a_pod("a", priority=-1)))
    assert evicted(answer) == ["a", "b", "c"]


def test_a_pod_whose_budget_refuses_is_not_evicted_and_the_budget_is_named():
    refused = a_pod("web", eviction=EvictionAnswer.REFUSED, eviction_message="PDB web allows 0")
    answer = step(deleting(refused))
    assert evicted(answer) == []
    assert answer.progress.message == "budgets allow no eviction of team/web: PDB web allows 0"
    assert evicted(step(deleting(refused, a_pod("job")))) == ["job"]


def test_a_terminating_pod_is_not_evicted_again():
    answer = step(deleting(a_pod("a", is_terminating=True), a_pod("b")))
    assert evicted(answer) == ["b"]


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        (a_pod("x", owner=PodOwner.NONE), "that no controller creates again"),
        (a_pod("x", has_empty_dir=True), "with an emptyDir"),
        (a_pod("x", owner=PodOwner.MIRROR), "a static pod"),
        (a_pod("x", owner=PodOwner.DAEMON_SET), "of a DaemonSet without a deploy label"),
    ],
    ids=["no controller", "emptyDir", "static", "DaemonSet"],
)
def test_a_pod_that_cannot_be_evicted_is_named_and_no_other_pod_is_evicted_in_vain(pod, cause):
    answer = step(deleting(pod, a_pod("other")))
    assert evicted(answer) == []
    assert answer.progress.reason is UpgradeReason.DRIVER_HELD
    assert answer.progress.message.startswith(f"the driver is held by team/x, {cause}")


def test_force_and_delete_empty_dir_evict_what_is_lost():
    limits = the_parameters(pod_deletion=EvictionLimits(force=True, delete_empty_dir=True))
    node = deleting(a_pod("x", owner=PodOwner.NONE), a_pod("y", has_empty_dir=True))
    assert evicted(step(node, limits)) == ["x", "y"]


def test_a_process_outside_of_pods_is_named():
    answer = step(deleting(processes=ON_NODE))
    assert answer.progress.message == (
        "the driver is held by process 4242 (nvtop), in no pod: stop it on the node"
    )


def test_a_pod_that_is_over_with_processes_left_is_waited_for():
    over = a_pod("over", is_active=False, uses=frozenset({DriverUse.OPEN}))
    answer = step(deleting(over))
    assert answer.progress.reason is UpgradeReason.PODS_TERMINATING
    assert names(answer) == []


def test_driver_pods_agent_and_operands_are_no_users():
    driver = a_pod("driver-outdated", uses=frozenset({DriverUse.OPEN}))
    agent = a_pod("agent", is_agent=True)
    operand = a_pod("dcgm", deploy_label=DCGM)
    answer = step(deleting(driver, agent, operand))
    assert answer.progress.reason is UpgradeReason.PODS_GONE


def test_a_drain_leaves_daemon_sets_static_pods_and_pods_with_the_skip_label():
    limits = the_parameters(drain=EvictionLimits(selector=parse_label_selector("!keep")))
    node = out_of_service(
        "drain-required",
        driver_pods=OLD,
        pods=(
            a_pod("plain", uses=frozenset()),
            A_DAEMON_POD,
            a_pod("static", owner=PodOwner.MIRROR, uses=frozenset()),
            a_pod("kept", labels={"keep": ""}),
            a_pod("skipped", labels={DRAIN_SKIP_LABEL: "true"}),
            a_pod("over", is_active=False),
        ),
    )
    assert evicted(step(node, limits)) == ["plain"]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (["nvidia.com/gpu"], {DriverUse.NVIDIA_GPU}),
        (["nvidia.com/gpu.shared"], {DriverUse.NVIDIA_GPU}),
        (["nvidia.com/mig-1g.10gb"], {DriverUse.MIG}),
        (["gpu.deckhouse.io/a100"], {DriverUse.POOL}),
        (["cpu", "memory", "nvidia.com/rdma", "example.com/nvidia.com/gpu"], set()),
    ],
)
def test_what_a_pod_requests_says_how_it_uses_the_driver(resources, expected):
    uses, pools = uses_of(resources)
    assert uses == expected
    assert pools == ({"a100"} if DriverUse.POOL in expected else set())


def test_a_claim_and_an_open_driver_are_uses_whatever_the_pod_requests():
    assert uses_of(["cpu"], has_claim=True)[0] == {DriverUse.CLAIM}
    assert uses_of([], has_driver_open=True)[0] == {DriverUse.OPEN}


# Restarted


def test_before_the_driver_is_unloaded_users_go_then_operands_then_the_agent():
    labels = {DCGM: "true", EXPORTER: "paused-for-mig-change"}
    user, agent = a_pod(), a_pod("agent", is_agent=True)
    dcgm, exporter = a_pod("d", deploy_label=DCGM), a_pod("e", deploy_label=EXPORTER)
    everything = (user, agent, dcgm, exporter)
    answer = step(restarting(released=False, labels=labels, pods=everything))
    assert names(answer) == ["EvictPod"]
    answer = step(restarting(released=False, labels=labels, pods=everything[1:]))
    assert writes(answer) == [PauseOperand(answer.progress.node, DCGM)]
    answer = step(restarting(released=False, labels=labels, pods=(agent,)))
    assert names(answer) == ["ReleaseAgent"]
    assert names(step(restarting(labels=labels, pods=(agent,)))) == []
    answer = step(restarting(labels=labels))
    assert writes(answer) == [
        DeletePod(answer.progress.node, "gpu", "driver-outdated", PodUid("driver-outdated"))
    ]


def test_every_driver_pod_that_is_to_go_is_deleted_once():
    pods = (
        a_driver(OUTDATED),
        a_driver(ORPHAN),
        a_driver(OUTDATED, name="going", uid=PodUid("going"), is_terminating=True),
    )
    answer = step(restarting(driver_pods=pods))
    deleted = [action.name for action in answer.actions if isinstance(action, DeletePod)]
    assert deleted == ["driver-outdated", "driver-orphan"]


def test_a_pod_that_was_taken_over_goes_with_the_driver_unless_a_label_sends_it_away():
    held = a_pod("status", uses=frozenset(), is_held=True)
    plugin = a_pod("plugin", uses=frozenset(), is_held=True, deploy_label=DCGM)
    answer = step(restarting(pods=(held, plugin, a_pod("other", uses=frozenset()))))
    deleted = [action.name for action in answer.actions if isinstance(action, DeletePod)]
    assert deleted == ["driver-outdated", "status"]


def test_the_driver_loads_once_nothing_uses_it():
    node = restarting(driver_pods=LOADING, annotations={SAFE_LOAD_ANNOTATION: "true"})
    assert writes(step(node)) == [Annotate(node.name, {SAFE_LOAD_ANNOTATION: None})]
    used = restarting(
        driver_pods=LOADING, annotations={SAFE_LOAD_ANNOTATION: "true"}, pods=(a_pod(),)
    )
    assert names(step(used)) == ["EvictPod"]


def test_a_driver_pod_of_another_configuration_is_held_off_until_the_node_is_empty():
    """Pods stayed, for a revision that was overtaken."""
    on = {DRIVER_DEPLOY_LABEL: "true"}
    record = {"reason": UpgradeReason.RESTART_ONLY, "digest": "d1"}
    defaults = {"record": record, "desired_digest": "d3", "released": False, "pods": (a_pod(),)}
    for pods in ((), LOADING, (a_driver(OUTDATED, is_terminating=True, config_digest="d1"),)):
        answer = step(restarting(driver_pods=pods, labels=on, **defaults))
        assert PauseOperand(NodeName("n1"), DRIVER_DEPLOY_LABEL) in answer.actions
    off = {DRIVER_DEPLOY_LABEL: PAUSED_FOR_UPGRADE}
    answer = step(restarting(driver_pods=(), labels=off, **defaults))
    assert answer.progress.state is UpgradeState.CORDON_REQUIRED
    held = {"driver_pods": (), "labels": off}
    assert evicted(step(deleting(a_pod(), **held))) == ["train"]
    assert names(step(restarting(**held))) == ["ResumeOperand"]
    loaded = restarting(labels=on, **defaults | {"driver_pods": (a_driver(),)})
    assert step(loaded).progress.state is UpgradeState.VALIDATION_REQUIRED


@pytest.mark.parametrize("state", ["upgrade-done", "upgrade-required", "upgrade-failed"])
def test_a_driver_that_is_held_off_comes_back_whatever_state_is_written_by_hand(state: str):
    label = {DRIVER_DEPLOY_LABEL: PAUSED_FOR_UPGRADE}
    held = {"driver_pods": (), "labels": label, "desired_revision": "rev-3"}
    answer = step(a_node(state, record={"revision": "rev-2"}, **held))
    expected = "cordon-required" if state == "upgrade-required" else "upgrade-required"
    assert answer.progress.state.value == expected
    off = step(out_of_service(state, **held), the_parameters(auto_upgrade=False))
    assert names(off) == ["ResumeOperand"]


def test_a_requested_upgrade_replaces_a_driver_pod_that_is_up_to_date():
    asked = a_node("upgrade-required", annotations={UPGRADE_REQUESTED_ANNOTATION: "true"})
    change = state_change(step(asked))
    assert change.annotations[UPGRADE_REQUESTED_ANNOTATION] is None
    record = json.loads(change.annotations[UPGRADE_RECORD_ANNOTATION] or "")
    assert record["replaces"] == "driver-current"
    node = restarting(driver_pods=(a_driver(),), record={"replaces": "driver-current"})
    assert names(step(node)) == ["DeletePod"]
    new = a_driver(uid=PodUid("another"))
    answer = step(restarting(driver_pods=(new,), record={"replaces": "driver-current"}))
    assert answer.progress.reason is UpgradeReason.DRIVER_READY


def test_a_request_is_kept_until_the_node_gets_its_turn():
    asked = a_node(
        "upgrade-required",
        labels={UPGRADE_SKIP_LABEL: "true"},
        annotations={UPGRADE_REQUESTED_ANNOTATION: "true"},
    )
    assert names(step(asked)) == []


# What is written


def test_state_record_and_upstreams_start_time_are_one_write_that_checks_the_old_state():
    answer = step(restarting(driver_pods=(a_driver(),)))
    change = state_change(answer)
    assert change.before == "pod-restart-required"
    assert change.annotations[VALIDATION_START_ANNOTATION] == str(int(NOW.timestamp()))
    assert json.loads(change.annotations[UPGRADE_RECORD_ANNOTATION] or "") == {
        "state": "validation-required",
        "since": "2026-05-04T03:00:00Z",
        "attempt": 1,
        "reason": "DriverReady",
        "message": "the new driver is ready",
        "until": "2026-05-04T03:10:00Z",
    }


def test_upstreams_start_times_go_with_their_states():
    validating = out_of_service(
        "validation-required", annotations={VALIDATION_START_ANNOTATION: "17"}
    )
    assert state_change(step(validating)).annotations[VALIDATION_START_ANNOTATION] is None
    cordoning = a_node("cordon-required", driver_pods=OLD)
    assert WAIT_START_ANNOTATION not in state_change(step(cordoning)).annotations
    limited = the_parameters(awaited=AwaitedPods(limit_s=60))
    seconds = str(int(NOW.timestamp()))
    assert state_change(step(cordoning, limited)).annotations[WAIT_START_ANNOTATION] == seconds


def test_without_auto_upgrade_nothing_of_an_upgrade_is_left_on_the_node():
    node = out_of_service(
        "pod-deletion-required",
        driver_pods=OLD,
        released=True,
        labels={DCGM: PAUSED_FOR_UPGRADE, "mine": "kept"},
        annotations={
            INITIALLY_UNSCHEDULABLE_ANNOTATION: "true",
            WAIT_START_ANNOTATION: "1",
            VALIDATION_START_ANNOTATION: "1",
            SAFE_LOAD_ANNOTATION: "",
            "mine": "kept",
        },
    )
    answer = step(node, the_parameters(auto_upgrade=False))
    assert names(answer) == ["ResumeOperand", "ReturnAgent", "Uncordon", "ReturnUnits", "SetState"]
    change = state_change(answer)
    assert change.state.value == ""
    assert change.annotations == dict.fromkeys(
        (
            UPGRADE_RECORD_ANNOTATION,
            INITIALLY_UNSCHEDULABLE_ANNOTATION,
            WAIT_START_ANNOTATION,
            VALIDATION_START_ANNOTATION,
        )
    )


def test_a_reason_is_reported_once():
    node = deleting(a_pod())
    (report,) = (action for action in step(node).actions if isinstance(action, ReportReason))
    assert (report.reason, report.message) == (UpgradeReason.EVICTING, "evicts team/train")
    reported = deleting(a_pod(), reported_reason="EvictingPods: evicts team/another")
    assert [action for action in step(reported).actions if isinstance(action, ReportReason)] == []


def test_a_node_at_rest_causes_no_action():
    assert step(a_node("upgrade-done")).actions == ()
    assert step(a_node("upgrade-done", record=None)).actions == ()


def test_a_node_in_a_state_says_when_to_look_again():
    (wait,) = (
        action for action in step(deleting(a_pod())).actions if isinstance(action, WaitUntil)
    )
    assert wait.until == NOW + dt.timedelta(seconds=300)
    endless = the_parameters(pod_deletion=EvictionLimits(limit_s=0))
    (wait,) = (
        action
        for action in step(deleting(a_pod()), endless).actions
        if isinstance(action, WaitUntil)
    )
    assert wait.until == NOW + dt.timedelta(days=1)


def test_the_label_that_keeps_our_pods_away_is_no_label_of_the_gpu_operator():
    assert AGENT_DEPLOY_LABEL.startswith("gpu.deckhouse.io/")
    assert UPGRADE_STATE_LABEL == "nvidia.com/gpu-driver-upgrade-state"

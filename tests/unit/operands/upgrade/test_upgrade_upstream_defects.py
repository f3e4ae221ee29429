"""Defects of NVIDIA's GPU Operator in driver upgrades, and complaints of its users: each is answered here.

Issues are those of NVIDIA/gpu-operator.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pytest

from api.driver_upgrade import PAUSED_FOR_UPGRADE, UpgradeState
from api.names import DRIVER_OWNER_LABEL, NodeName
from operands.upgrade.actions import PauseOperand, ResumeOperand
from operands.upgrade.facts import DriverUse, UpgradeNode
from operands.upgrade.parameters import AwaitedPods, EvictionLimits, NodeLimit
from operands.upgrade.reasons import UpgradeReason
from tests.support.driver_upgrades import (
    NOT_READY,
    NOW,
    ON_NODE,
    OUTDATED,
    READY,
    a_driver,
    a_node,
    a_pod,
    names,
    out_of_service,
    plan,
    step,
    the_parameters,
    writes,
)

OLD = (a_driver(OUTDATED),)
CRASHING = (a_driver(is_ready=False, restarts=40),)


def states_of(nodes: Iterable[UpgradeNode], parameters: Any = None) -> dict[str, Any]:
    return {
        item.progress.node: (item.progress.state.value, item.progress.reason)
        for upgrade in plan(nodes, parameters).values()
        for item in upgrade.nodes
    }


def test_failed_nodes_take_no_parallel_upgrade_and_are_named():
    """Lesson 46. With one upgrade at a time, upstream stops for ever, silently, after the first failure."""
    broken = [
        out_of_service("upgrade-failed", name=NodeName(f"f{number}"), driver_pods=CRASHING)
        for number in range(3)
    ]
    waiting = a_node("upgrade-required", name=NodeName("n1"), driver_pods=OLD)
    parameters = the_parameters(max_parallel=1, max_unavailable=NodeLimit(5))
    nodes = [*broken, waiting, *(a_node("upgrade-done", name=NodeName(f"d{n}")) for n in range(4))]
    assert states_of(nodes, parameters)["n1"][0] == "cordon-required"
    (upgrade,) = plan(nodes, parameters).values()
    assert upgrade.counts.failed == 3
    assert [entry.node for entry in upgrade.entries()] == ["f0", "f1", "f2", "n1"]


def test_an_unscheduled_driver_pod_holds_up_its_own_node_only():
    """Lesson 47. Upstream builds no state at all while any driver pod of the cluster is unscheduled."""
    message = "0/9 nodes are available: 1 Insufficient memory"
    pending = a_node(
        "upgrade-required",
        name=NodeName("p"),
        driver_pods=(a_driver(is_ready=False, is_scheduled=False, message=message),),
        annotations={"nvidia.com/gpu-driver-upgrade-requested": "true"},
    )
    missing = a_node(name=NodeName("m"), driver_pods=())
    waiting = a_node("upgrade-required", name=NodeName("n1"), driver_pods=OLD)
    states = states_of([pending, missing, waiting], the_parameters(max_unavailable=NodeLimit(3)))
    assert states == {
        "p": ("upgrade-required", UpgradeReason.NO_DRIVER_POD),
        "m": ("", UpgradeReason.NO_DRIVER_POD),
        "n1": ("cordon-required", UpgradeReason.STARTED),
    }
    assert message in step(pending).progress.message


def test_a_failed_node_is_done_only_after_validation():
    """Lesson 48. Upstream uncordons a failed node as soon as its driver pod is ready."""
    for validators in ((), NOT_READY, READY + NOT_READY):
        node = out_of_service("upgrade-failed", validators=validators)
        assert step(node).progress.state is UpgradeState.UPGRADE_FAILED
        assert "Uncordon" not in names(step(node))
    validated = step(out_of_service("upgrade-failed", validators=READY))
    assert validated.progress.state is UpgradeState.UPGRADE_DONE
    assert names(validated) == ["Uncordon", "ReturnUnits", "SetState"]


def test_every_node_has_a_reason_and_the_time_of_its_state():
    """Lesson 48. Upstream has a label only (#667, #331, #368: what is it waiting for?)."""
    node = out_of_service("pod-deletion-required", driver_pods=OLD, pods=(a_pod(),), seconds=42)
    entry = step(node).progress.entry()
    assert (entry.node, entry.state, entry.attempt) == ("n1", "pod-deletion-required", 1)
    assert entry.since == "2026-05-04T02:59:18Z"
    assert (entry.reason, entry.message) == ("EvictingPods", "evicts team/train")


LIMITED = the_parameters(awaited=AwaitedPods(limit_s=60), drain=EvictionLimits())
STUCK = [
    (a_node("cordon-required", driver_pods=OLD, seconds=301), "upgrade-failed"),
    (
        out_of_service("pod-deletion-required", driver_pods=OLD, pods=(a_pod(),), seconds=301),
        "drain-required",
    ),
    (
        out_of_service("drain-required", driver_pods=OLD, pods=(a_pod(),), seconds=301),
        "upgrade-failed",
    ),
    (out_of_service("pod-restart-required", driver_pods=(), seconds=1801), "upgrade-failed"),
    (out_of_service("validation-required", validators=(), seconds=601), "upgrade-failed"),
]


@pytest.mark.parametrize(("node", "expected"), STUCK, ids=lambda item: str(item)[:24])
def test_stuck_states_end_by_their_deadline(node, expected):
    """#626, #901, #902, #416: validation-required, pod-restart-required for days."""
    assert step(node, LIMITED).progress.state.value == expected


def test_stuck_upgrade_required_is_overdue_after_a_day_and_says_why():
    """#2509: upgrade-required for weeks, and nothing tells why."""
    node = a_node("upgrade-required", driver_pods=OLD, seconds=86_400)
    progress = step(node, the_parameters(max_unavailable=NodeLimit(0))).progress
    assert progress.is_overdue
    assert progress.message == ("nodes away: 0; maxUnavailable of 0 allows 0, nodes in all: 1")
    fresh = a_node("upgrade-required", driver_pods=OLD, seconds=3600)
    assert not step(fresh, the_parameters(max_unavailable=NodeLimit(0))).progress.is_overdue


def test_stuck_failed_nodes_are_tried_again_after_pauses_that_grow():
    """#2549, #316: a failed node stays failed until a user edits labels."""

    def tries_again(attempt: int, minutes: int) -> bool:
        node = a_node(
            "upgrade-failed",
            driver_pods=OLD,
            seconds=minutes * 60,
            record={"attempt": attempt, "revision": "rev-2"},
        )
        progress = step(node).progress
        assert progress.attempt == attempt + (progress.state is UpgradeState.UPGRADE_REQUIRED)
        return progress.state is UpgradeState.UPGRADE_REQUIRED

    for attempt, minutes in ((1, 10), (2, 20), (3, 40), (6, 320), (7, 360), (50, 360)):
        assert not tries_again(attempt, minutes - 1)
        assert tries_again(attempt, minutes)


def test_stuck_failed_nodes_get_a_revision_that_is_new_at_once():
    """An image is corrected: upstream leaves the failed pod as it is, since nothing deletes it."""
    node = out_of_service(
        "upgrade-failed",
        driver_pods=(a_driver(OUTDATED, is_ready=False, restarts=40),),
        desired_revision="rev-3",
        record={"attempt": 5, "revision": "rev-2"},
    )
    progress = step(node).progress
    assert (progress.state, progress.attempt) == (UpgradeState.UPGRADE_REQUIRED, 1)


def test_reinstalls_only_the_driver_pod_where_its_configuration_is_the_same():
    """#705, #831, #424, #782, #454, #2166: a change of a chart, or of NFD's labels, kills workloads."""
    node = out_of_service(
        "pod-restart-required",
        driver_pods=(a_driver(OUTDATED, config_digest="same"),),
        desired_digest="same",
        pods=(a_pod(), a_pod("agent", is_agent=True)),
    )
    assert names(step(node)) == ["DeletePod"]
    started = a_node(
        "upgrade-required",
        driver_pods=(a_driver(OUTDATED, config_digest="same"),),
        desired_digest="same",
        pods=(a_pod(),),
    )
    assert step(started).progress.reason is UpgradeReason.RESTART_ONLY


def test_reinstalls_nothing_where_a_change_was_taken_back():
    """Nodes that still wait for their turn evict no pod for a driver that they have."""
    waiting = a_node("upgrade-required", pods=(a_pod(),))
    assert step(waiting).progress.state is UpgradeState.UPGRADE_DONE
    emptying = out_of_service("pod-deletion-required", pods=(a_pod(),))
    assert names(step(emptying)) == ["SetState"]
    assert step(emptying).progress.state is UpgradeState.POD_RESTART_REQUIRED


def test_drivers_of_several_versions_are_rolled_by_their_own_policies():
    """#328, #433, #94, #38: one version, and one pace, for the whole cluster."""
    nodes = [
        a_node(
            "upgrade-required",
            name=NodeName(f"{owner}-{number}"),
            driver_pods=OLD,
            labels={DRIVER_OWNER_LABEL: owner},
        )
        for owner in ("rhel", "ubuntu")
        for number in range(2)
    ]
    states = states_of(
        nodes, {"rhel": the_parameters(), "ubuntu": the_parameters(auto_upgrade=False)}
    )
    assert {name: state for name, (state, _) in states.items()} == {
        "rhel-0": "cordon-required",
        "rhel-1": "upgrade-required",
        "ubuntu-0": "",
        "ubuntu-1": "",
    }


def test_deploy_labels_of_others_are_never_overwritten():
    """#2288, #491, #1018, #316: values that an administrator or the MIG manager wrote are lost."""
    labels = {
        "nvidia.com/gpu.deploy.dcgm": "true",
        "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-mig-change",
        "nvidia.com/gpu.deploy.gpu-feature-discovery": "false",
    }
    pods = tuple(a_pod(key.rpartition(".")[2], deploy_label=key) for key in labels)
    restarting = step(
        out_of_service("pod-restart-required", driver_pods=OLD, labels=labels, pods=pods)
    )
    dcgm = "nvidia.com/gpu.deploy.dcgm"
    assert writes(restarting) == [PauseOperand(NodeName("n1"), dcgm)]
    returning = step(a_node("uncordon-required", labels=labels | {dcgm: PAUSED_FOR_UPGRADE}))
    assert writes(returning)[0] == ResumeOperand(NodeName("n1"), dcgm)
    assert names(returning) == ["ResumeOperand", "SetState"]


@pytest.mark.parametrize(
    "fields",
    [
        {"pods": (a_pod("x", uses=frozenset({DriverUse.OPEN})),)},
        {"pods": (a_pod("x", uses=frozenset({DriverUse.CLAIM})),)},
        {"pods": (a_pod("x", uses=frozenset({DriverUse.POOL})),)},
        {"processes": ON_NODE},
    ],
    ids=["open", "claim", "pool", "process"],
)
def test_2570_whoever_has_the_driver_open_keeps_it_whatever_it_requests(fields):
    node = out_of_service("pod-restart-required", driver_pods=OLD, released=True, **fields)
    assert "DeletePod" not in names(step(node))


def test_cleanup_leaves_no_label_and_no_cordoned_node_where_upgrades_are_switched_off():
    """#1391, #1301, #584: labels stay after uninstallation, and nodes stay drained."""
    off = the_parameters(auto_upgrade=False)
    done = step(a_node("upgrade-done"), off)
    assert (done.progress.state, names(done)) == (UpgradeState.UNKNOWN, ["SetState"])
    halfway = step(out_of_service("drain-required", driver_pods=OLD), off)
    assert names(halfway) == ["Uncordon", "ReturnUnits", "SetState"]
    (clean,) = plan([a_node(record=None)], off).values()
    assert clean.nodes == ()
    gone = step(out_of_service("pod-restart-required", driver_pods=(), is_selected=False))
    assert names(gone) == ["Uncordon", "ReturnUnits", "SetState"]


def test_a_node_without_a_driver_is_not_given_back_where_upgrades_are_switched_off():
    node = out_of_service("pod-restart-required", driver_pods=CRASHING)
    answer = step(node, the_parameters(auto_upgrade=False), now=NOW + dt.timedelta(days=1))
    assert names(answer) == []
    assert answer.progress.message.startswith(
        "autoUpgrade is off for the ClusterPolicy; the node returns to service once its driver is ready"
    )

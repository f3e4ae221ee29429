"""Which nodes start: limits, order, and why the others wait."""

import datetime as dt
from typing import Any

import pytest

from api.driver_upgrade import UPGRADE_SKIP_LABEL
from api.field_errors import FieldError
from api.names import DRIVER_OWNER_LABEL, NodeName
from operands.upgrade.cluster import CLUSTER_POLICY, UpgradeCounts
from operands.upgrade.facts import PodOwner, UpgradeNode
from operands.upgrade.parameters import NodeLimit
from operands.upgrade.reasons import UpgradeReason
from tests.support.driver_upgrades import (
    NOW,
    OUTDATED,
    a_driver,
    a_node,
    a_pod,
    out_of_service,
    plan,
    the_parameters,
)

OLD = (a_driver(OUTDATED),)
ALL = NodeLimit(100, is_percentage=True)


def waiting(name: str, **fields: Any) -> UpgradeNode:
    return a_node("upgrade-required", **{"name": NodeName(name), "driver_pods": OLD} | fields)


def moving(name: str, state: str = "pod-deletion-required", **fields: Any) -> UpgradeNode:
    defaults = {"name": NodeName(name), "driver_pods": OLD, "pods": (a_pod(),)}
    return out_of_service(state, **defaults | fields)


def idle(count: int) -> list[UpgradeNode]:
    return [a_node("upgrade-done", name=NodeName(f"idle-{number}")) for number in range(count)]


def started(nodes, parameters=None) -> list[str]:
    (upgrade,) = plan(nodes, parameters).values()
    states = {item.progress.node: item.progress.state.value for item in upgrade.nodes}
    return [
        node.name
        for node in nodes
        if node.labels.get("nvidia.com/gpu-driver-upgrade-state") == "upgrade-required"
        and states[node.name] != "upgrade-required"
    ]


def refusal(name: str, nodes, parameters=None):
    (upgrade,) = plan(nodes, parameters).values()
    (progress,) = (item.progress for item in upgrade.nodes if item.progress.node == name)
    return progress.reason, progress.message


def order_of(nodes) -> list[str]:
    """Return the names in the order in which they start, one after the other."""
    left, order = list(nodes), []
    while left:
        (first,) = started([*left, *idle(20)], the_parameters(max_unavailable=NodeLimit(19)))
        order.append(first)
        left = [node for node in left if node.name != first]
    return order


def test_one_node_at_a_time_by_default():
    nodes = [waiting(f"n{number}") for number in range(8)]
    assert started(nodes) == ["n0"]
    assert started([moving("m"), *nodes]) == []


def test_zero_parallel_upgrades_is_no_limit_but_for_unavailable_nodes():
    nodes = [waiting(f"n{number}") for number in range(8)]
    assert len(started(nodes, the_parameters(max_parallel=0, max_unavailable=ALL))) == 8
    assert len(started(nodes, the_parameters(max_parallel=0))) == 2


def test_a_node_that_is_away_for_whatever_cause_counts_against_max_unavailable():
    parameters = the_parameters(max_parallel=0, max_unavailable=NodeLimit(3))
    nodes = [waiting(f"n{number}") for number in range(4)]
    assert len(started(nodes, parameters)) == 3
    cordoned = a_node("upgrade-done", name=NodeName("c"), is_schedulable=False)
    lost = a_node("upgrade-done", name=NodeName("l"), is_ready=False)
    assert len(started([cordoned, *nodes], parameters)) == 2
    assert len(started([cordoned, lost, *nodes], parameters)) == 1
    assert len(started([cordoned, lost, moving("m"), *nodes], parameters)) == 0


def test_share_of_nodes_is_of_those_with_a_driver():
    """Nodes with a GPU whose system is not known have no driver, and are no reason to take more of the others."""
    parameters = the_parameters(max_parallel=0, max_unavailable=NodeLimit(50, is_percentage=True))
    nodes = [waiting(f"n{number}") for number in range(4)]
    unknown = [
        a_node(name=NodeName(f"u{number}"), driver_pods=(), desired_revision="")
        for number in range(4)
    ]
    new = [a_node(name=NodeName(f"new-{number}"), driver_pods=()) for number in range(2)]
    assert len(started([*nodes, *unknown], parameters)) == 2
    assert len(started([*nodes, *unknown, *new], parameters)) == 3


def test_the_refusal_says_what_is_away_and_what_is_allowed():
    broken = out_of_service(
        "upgrade-failed", name=NodeName("f"), driver_pods=(a_driver(is_ready=False),)
    )
    cordoned = a_node("upgrade-done", name=NodeName("c"), is_schedulable=False)
    lost = a_node("upgrade-done", name=NodeName("l"), is_ready=False)
    parameters = the_parameters(max_parallel=0, max_unavailable=NodeLimit(50, is_percentage=True))
    nodes = [broken, cordoned, lost, moving("m"), waiting("n1"), *idle(3)]
    assert refusal("n1", nodes, parameters) == (
        UpgradeReason.MAX_UNAVAILABLE,
        "nodes away: 4 (1 cordoned, 1 failed, 1 in progress, 1 not ready);"
        " maxUnavailable of 50% allows 4, nodes in all: 8",
    )
    reason, message = refusal(
        "n2", [moving("m"), waiting("n2")], the_parameters(max_unavailable=ALL)
    )
    assert reason is UpgradeReason.MAX_PARALLEL
    assert message == "nodes in progress: 1; maxParallelUpgrades is 1"


def test_the_refusal_counts_nodes_that_start_in_the_same_pass():
    _, message = refusal("n2", [waiting("n1"), waiting("n2")], the_parameters(max_parallel=2))
    assert message == (
        "nodes away: 1 (1 starting); maxUnavailable of 25% allows 1, nodes in all: 2"
    )


def test_max_unavailable_of_zero_starts_no_node_and_says_so():
    parameters = the_parameters(max_unavailable=NodeLimit(0, is_percentage=True))
    assert started([waiting("n1")], parameters) == []
    reason, message = refusal("n1", [waiting("n1")], parameters)
    assert reason is UpgradeReason.MAX_UNAVAILABLE
    assert "maxUnavailable of 0% allows 0" in message


def test_a_note_of_the_policy_is_part_of_the_refusal():
    note = FieldError("spec.driver.upgradePolicy.maxUnavailable", "-1 counts as 0")
    parameters = the_parameters(max_unavailable=NodeLimit(0), notes=(note,))
    _, message = refusal("n1", [waiting("n1")], parameters)
    assert message.endswith("; spec.driver.upgradePolicy.maxUnavailable: -1 counts as 0")


def test_a_fault_of_the_policy_stops_new_nodes_and_lets_the_others_end():
    fault = FieldError("spec.driver.upgradePolicy.maxUnavailable", "'x' is no number")
    parameters = the_parameters(faults=(fault,))
    nodes = [waiting("n1"), moving("m", pods=())]
    assert refusal("n1", nodes, parameters) == (
        UpgradeReason.POLICY_REFUSED,
        "no node starts: spec.driver.upgradePolicy.maxUnavailable: 'x' is no number",
    )
    assert refusal("m", nodes, parameters)[0] is UpgradeReason.PODS_GONE


def test_a_cordoned_node_needs_no_unavailability_and_one_parallel_upgrade():
    cordoned = [waiting(f"c{number}", is_schedulable=False) for number in range(3)]
    nodes = [*cordoned, waiting("n1")]
    assert started(nodes, the_parameters(max_parallel=2, max_unavailable=NodeLimit(0))) == [
        "c0",
        "c1",
    ]


def test_a_node_whose_choice_was_not_written_yet_is_chosen_again():
    half = waiting("z", annotations={"gpu.deckhouse.io/units-withheld-by": "driver-upgrade"})
    assert started([waiting("a"), half, *idle(3)]) == ["z"]


def test_empty_nodes_go_first_and_then_those_whose_pods_end_soonest():
    def busy(name: str, minutes: int | None, **fields: Any) -> UpgradeNode:
        ends = None if minutes is None else NOW + dt.timedelta(minutes=minutes)
        return waiting(name, pods=(a_pod(ends_at=ends, **fields),))

    long, short, unknown = busy("long", 90), busy("short", 5), busy("unknown", None)
    two = waiting(
        "two",
        pods=(
            a_pod("a", ends_at=NOW + dt.timedelta(minutes=1)),
            a_pod("b", ends_at=NOW + dt.timedelta(minutes=30)),
        ),
    )
    others = waiting("others", pods=(a_pod(uses=frozenset()),))
    held = waiting("held", pods=(a_pod(owner=PodOwner.NONE, ends_at=NOW),))
    precious = busy("a-precious", None, priority=1000)
    nodes = [held, precious, unknown, long, two, short, others]
    expected = ["others", "short", "two", "long", "unknown", "a-precious", "held"]
    assert order_of(nodes) == expected
    assert order_of(reversed(nodes)) == expected


def test_first_attempts_go_before_further_ones():
    again = waiting("a", record={"attempt": 2})
    assert order_of([again, waiting("b", pods=(a_pod(),))]) == ["b", "a"]


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {UPGRADE_SKIP_LABEL: "true"}},
        {"is_ready": False, "is_schedulable": True},
        {"driver_pods": ()},
        {"driver_pods": (a_driver(),)},
        {"is_leaving": True},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_node_that_cannot_start_takes_no_slot(fields):
    nodes = [waiting("a", **fields), waiting("b"), *idle(6)]
    assert "b" in started(nodes)


def test_a_node_whose_pods_are_not_read_counts_as_no_empty_one():
    busy = waiting("z", pods=(a_pod(),))
    assert started([waiting("a", pods=None), busy]) == ["z"]


def test_owners_have_their_own_limits():
    def owned(name: str, owner: str) -> UpgradeNode:
        return waiting(name, labels={DRIVER_OWNER_LABEL: owner})

    nodes = [owned("a1", "a"), owned("a2", "a"), owned("b1", "b"), owned("b2", "b"), waiting("c1")]
    policies = {"a": the_parameters(), "b": the_parameters(max_parallel=0, max_unavailable=ALL)}
    upgrades = plan(nodes, policies)
    assert sorted(upgrades) == ["", "a", "b"]
    states = {
        item.progress.node: item.progress.state.value
        for upgrade in upgrades.values()
        for item in upgrade.nodes
    }
    assert states == {
        "a1": "cordon-required",
        "a2": "upgrade-required",
        "b1": "cordon-required",
        "b2": "cordon-required",
        "c1": "",
    }
    assert [entry.node for entry in upgrades["a"].entries()] == ["a1", "a2"]


def test_a_cluster_policy_has_all_nodes_whatever_their_owner_label_says():
    nodes = [waiting("a", labels={DRIVER_OWNER_LABEL: "gone"}), waiting("b")]
    assert list(plan(nodes, {CLUSTER_POLICY: the_parameters()})) == [CLUSTER_POLICY]


def test_counts_are_those_of_the_gpu_operators_metrics():
    failed = a_node("upgrade-failed", name=NodeName("f"), driver_pods=OLD)
    nodes = [waiting("n1"), moving("m"), failed, *idle(5)]
    (upgrade,) = plan(nodes, the_parameters(max_parallel=3, max_unavailable=ALL)).values()
    assert upgrade.counts == UpgradeCounts(
        managed=8, in_progress=1, done=5, failed=1, pending=1, available=2
    )


def test_entries_leave_out_nodes_that_are_done():
    (upgrade,) = plan([waiting("n1"), *idle(3)]).values()
    (entry,) = upgrade.entries()
    assert (entry.node, entry.state, entry.attempt) == ("n1", "cordon-required", 1)
    assert entry.since == "2026-05-04T03:00:00Z"
    assert (entry.reason, entry.message) == ("UpgradeStarted", "attempt 1 begins")

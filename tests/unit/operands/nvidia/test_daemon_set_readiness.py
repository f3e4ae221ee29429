"""Readiness of a DaemonSet of node software, and which nodes miss it (#667, #331, #368)."""

from typing import Any

import pytest

from operands.nvidia.daemon_set_readiness import DaemonPod, by_pods, by_status, selected_nodes


def a_daemon_set(strategy: str = "RollingUpdate", /, **status: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "d", "uid": "u", "generation": 2},
        "spec": {
            "updateStrategy": {"type": strategy},
            "template": {"spec": {"nodeSelector": {"gpu": "yes"}}},
        },
        "status": {"observedGeneration": 2, **status},
    }


def rolled_out(updated: int = 3, available: int = 3) -> dict[str, int]:
    return {
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": 3 - available,
    }


@pytest.mark.parametrize("strategy", ["RollingUpdate", "OnDelete"])
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param({}, "", id="no node"),
        pytest.param(rolled_out(), "", id="all"),
        pytest.param(
            rolled_out() | {"observedGeneration": 1},
            "its last change is not observed yet",
            id="not observed",
        ),
        pytest.param(rolled_out(available=1), "1 of 3 nodes have an available pod", id="away"),
        pytest.param(
            rolled_out(updated=1), "1 of 3 nodes have a pod of the last template", id="old"
        ),
    ],
)
def test_the_status_says_how_far_it_is(strategy: str, status: dict[str, int], reason: str):
    assert by_status(a_daemon_set(strategy, **status)).reason == reason


def a_pod(node: str, **facts: Any) -> DaemonPod:
    return DaemonPod(**{"node": node, "owner": "u", "revision": "new", "is_ready": True, **facts})


def test_pods_of_the_newest_revision_on_all_nodes_are_ready_before_the_status_says_so():
    live = a_daemon_set("OnDelete", **rolled_out(updated=2))
    found = by_pods(live, [a_pod("a"), a_pod("b")], newest_revision="new", nodes=["a", "b"])
    assert (found.is_ready, found.nodes_ready, found.text) == (True, 2, "")


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        pytest.param(a_pod("b", revision="old"), "its pod is of an earlier version", id="old"),
        pytest.param(a_pod("b", is_ready=False, reason="why"), "why", id="not ready"),
        pytest.param(a_pod("b", is_ready=False), "its pod is not ready", id="without a reason"),
        pytest.param(a_pod("b", owner="other"), "no pod", id="of another"),
        pytest.param(a_pod("b", owner=""), "no pod", id="orphan"),
    ],
)
def test_a_node_that_misses_it_is_named_with_its_reason(pod: DaemonPod, text: str):
    live = a_daemon_set("OnDelete", **rolled_out(updated=2))
    found = by_pods(live, [a_pod("a"), pod], newest_revision="new", nodes=["a", "b"])
    assert found.missing == (f"node b: {text}",)
    assert found.text.endswith(f"; node b: {text}")


def test_of_many_nodes_the_first_are_named():
    nodes = [f"n{number}" for number in range(6)]
    live = a_daemon_set(**rolled_out(available=0))
    text = by_pods(live, [], newest_revision="", nodes=nodes).text
    assert "node n2: no pod" in text
    assert text.endswith("and 3 more nodes")


def test_nodes_are_selected_by_all_labels():
    labels = {"a": {"gpu": "yes", "x": "y"}, "b": {"gpu": "no"}, "c": {}}
    assert selected_nodes(a_daemon_set(), labels) == ["a"]


def test_a_node_whose_taint_keeps_the_pod_away_misses_nothing():
    live = a_daemon_set("OnDelete", **rolled_out(updated=2))
    pods = [a_pod("b"), a_pod("c"), a_pod("d", revision="old")]
    found = by_pods(live, pods, newest_revision="new", nodes=["a-tainted", "b", "c", "d"])
    assert found.missing == ("node d: its pod is of an earlier version",)

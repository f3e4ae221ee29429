"""How many pods of a DaemonSet may be away at a time, while nodes join and die."""

from dataclasses import replace
from typing import Any

from manifests.node.detector_daemonset import build_node_detector
from manifests.node.device_plugin import NodeDetectorSettings, WorkloadSettings
from pool.model import NodeFacts
from reconciler.runtime.rolling_update import allowing_for_unready_nodes
from tests.support.builders import a_node

LABELS = {"gpu": "yes"}
SETTINGS = WorkloadSettings(
    image="i", namespace="gpu", detector=NodeDetectorSettings(node_selector=LABELS)
)


class RollOut:
    """A DaemonSet, and what is written of it."""

    def __init__(self, *, outdated: int) -> None:
        (self.live,) = build_node_detector(SETTINGS)
        self.outdated = outdated
        self.written: list[Any] = []

    def see(self, nodes: list[NodeFacts]) -> None:
        scheduled = len(nodes)
        status = {
            "currentNumberScheduled": scheduled,
            "updatedNumberScheduled": max(0, scheduled - self.outdated),
        }
        live = {"gpu-node-detector": {**self.live, "status": status}}
        (rendered,) = allowing_for_unready_nodes(build_node_detector(SETTINGS), nodes, live=live)
        if rendered != self.live:
            self.live = rendered
            self.written.append(
                rendered["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"]
            )

    def join(self, count: int, nodes: list[NodeFacts]) -> None:
        """Let nodes come, each not ready at first."""
        for number in range(count):
            node = a_node(f"joined-{number}", labels=LABELS)
            self.see([*nodes, replace(node, is_ready=False)])
            nodes.append(node)
            self.see(nodes)


def test_fifty_nodes_that_join_write_nothing():
    rollout = RollOut(outdated=0)
    rollout.join(50, [])
    assert rollout.written == []


def test_fifty_nodes_that_join_during_a_roll_out_write_a_few_times():
    rollout = RollOut(outdated=1)
    rollout.join(50, [])
    assert rollout.written == [2, 3, 4, 5, 6]


def test_dead_nodes_are_added_while_pods_wait_and_no_longer():
    nodes = [a_node(f"n{number}", labels=LABELS, is_ready=number > 2) for number in range(20)]
    rollout = RollOut(outdated=0)
    rollout.see(nodes)
    assert rollout.written == []
    rollout.outdated = 5
    rollout.see(nodes)
    rollout.outdated = 0
    rollout.see(nodes)
    assert rollout.written == [5, "10%"]


def test_a_number_that_is_far_more_than_enough_goes():
    dead = [a_node(f"n{number}", labels=LABELS, is_ready=False) for number in range(20)]
    rollout = RollOut(outdated=5)
    rollout.see(dead)
    rollout.see([a_node(node.name, labels=LABELS) for node in dead])
    assert rollout.written == [22, "10%"]

"""Pods that hold units which kubelet counts as free: deleted, contradicted and forgotten ones."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.files import replace_file
from agent.kubelet.node_pods import NodePods, node_pod
from agent.plugin.held_units import HeldUnits, HolderSource, HoldingPod
from agent.plugin.pods_file import PodsFile
from api.foreign.core import Pod
from api.kubelet.podresources import ContainerUnits, PodUnits
from api.names import PodUid
from api.nodefiles.node_pods_file import PODS_FILE, STALE_S, NodePodsFile, NodePodUnits
from http_edge.system_clock import SystemClock
from tests.support.bound_pods import RESOURCE, a_bound_pod

UID = PodUid("uid-p")
STILL = "whose processes are still there"
FORGOTTEN = "whose devices kubelet has forgotten"


class Node:
    def __init__(self, folder: Path) -> None:
        self.path = folder / PODS_FILE
        self.pods = NodePods()
        self.held_units = HeldUnits(self.pods, PodsFile(folder, SystemClock()))
        self.held_units.refresh([])

    def publish(self, *units: str, **more: Any) -> None:
        one = NodePodUnits(uid=UID, namespace="default", name="p", units=list(units), **more)
        replace_file(self.path, msgspec.json.encode(NodePodsFile(version="v1", pods=[one])))

    def show(self, phase: str = "Running", uid: str = UID, *, runs: bool = False) -> None:
        pod = a_bound_pod("p", uid=uid, phase=phase, assigned={"main": ("GPU-1",)})
        if runs:
            status = {"phase": phase, "containerStatuses": [{"state": {"running": {}}}]}
            pod = msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))
        self.pods.upsert(node(pod))

    def delete(self) -> None:
        self.pods.discard(node(a_bound_pod("p")))

    def why(self, unit: str = "GPU-1") -> str | None:
        holder = self.held_units.holder(unit, RESOURCE, None)
        return None if holder is None else holder.why


def node(pod: Pod) -> Any:
    found = node_pod(pod)
    assert found is not None
    return found


@pytest.fixture
def here(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_pod_that_went_without_having_ended_has_what_the_agent_says(here: Node) -> None:
    here.show()
    here.publish("GPU-1")
    assert here.why() is None
    here.delete()
    assert (here.why(), here.why("GPU-2")) == (STILL, None)
    here.publish()
    assert here.why() is None


@pytest.mark.parametrize("is_over", [False, True])
def test_a_pod_that_ended_in_order_has_something_only_if_processes_were_seen_since(
    here: Node, *, is_over: bool
) -> None:
    here.show()
    here.publish("GPU-1", is_over=is_over)
    here.show("Succeeded")
    assert here.why() == (STILL if is_over else None)
    here.delete()
    assert here.why() == (STILL if is_over else None)


def test_a_phase_that_running_containers_contradict_ends_nothing(here: Node) -> None:
    here.publish("GPU-1")
    here.show("Succeeded", runs=True)
    assert here.why() == STILL


def test_a_phase_that_kubelet_took_back_ends_nothing_before_kubelet_lists_the_pod(
    here: Node,
) -> None:
    """kubelet admits a pod by the old phase: it reads the corrected one afterwards."""
    here.publish("GPU-1", is_given=True)
    here.show("Succeeded", runs=True)
    here.show(runs=True)
    assert here.why() == STILL
    here.show("Succeeded")
    assert here.why() is None


def test_a_pod_that_kubelet_lists_without_what_it_gave_has_it_still(here: Node) -> None:
    """Its user had called it ended, and its node has taken that back."""
    here.show()
    here.held_units.refresh([PodUnits("default", "p", (ContainerUnits("main", {}),))])
    here.publish("GPU-1")
    assert here.why() is None, "a pod that waits for its assigned units"
    here.publish("GPU-1", is_given=True)
    assert here.why() == FORGOTTEN
    here.held_units.refresh([])
    assert here.why() is None, "a pod that has ended before our watch shows it"
    here.held_units.mark_stale()
    assert here.why() == FORGOTTEN


def test_a_pod_does_not_stand_in_its_own_way_and_one_of_its_name_does(here: Node) -> None:
    here.publish("GPU-1", is_given=True)
    here.show(uid="second")
    second = here.pods.get(PodUid("second"))
    holder = here.held_units.holder("GPU-1", RESOURCE, second)
    assert holder == HoldingPod("default/p", UID, STILL)
    assert holder.text == f"default/p, {STILL}"
    here.show()
    here.held_units.refresh([PodUnits("default", "p", (ContainerUnits("main", {}),))])
    assert here.held_units.holder("GPU-1", RESOURCE, here.pods.get(UID)) is None


def test_slices_of_a_device_are_apart_and_the_whole_device_is_not(here: Node) -> None:
    here.publish("GPU-1::2")
    assert [here.why(unit) for unit in ("GPU-1::2", "GPU-1::3", "GPU-1")] == [STILL, None, STILL]


def test_what_the_agent_says_that_a_living_pod_was_given_is_asked_after(here: Node) -> None:
    here.show()
    here.publish("GPU-1", is_given=True)
    holders = [hold.source for hold in here.held_units.possible_holders("GPU-1", RESOURCE)]
    assert holders == [HolderSource.REPORTED]
    here.pods.upsert(node(a_bound_pod("q", assigned={"main": ("GPU-1",)})))
    holders = [hold.source for hold in here.held_units.possible_holders("GPU-1", RESOURCE)]
    assert holders == [HolderSource.REPORTED, HolderSource.ASSIGNED, HolderSource.ASSIGNED]
    here.delete()
    assert here.held_units.possible_holders("GPU-1", RESOURCE) == []


def test_an_agent_that_went_away_says_nothing(here: Node) -> None:
    here.publish("GPU-1")
    then = SystemClock().utc_now().timestamp() - STALE_S - 1
    os.utime(here.path, (then, then))
    assert here.why() is None
    os.utime(here.path)
    assert here.why() == STILL
    here.path.unlink()
    assert here.why() is None


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{", b'{"version":"v2"}', b"\xff"])
def test_a_file_that_makes_no_sense_says_nothing(here: Node, content: bytes) -> None:
    here.path.write_bytes(content)
    assert here.why() is None
    here.publish("GPU-1")
    assert here.why() == STILL

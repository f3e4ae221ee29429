"""preempt: evictions that would not help are called off."""

import json
from typing import Any

from scheduler.extender import preempt
from tests.support.builders import a_device
from tests.support.scheduling import Scene, a_wire_pod, preemption_args


def kept(scene: Scene, pod: dict[str, Any], **victims: list[str]) -> Any:
    answer = preempt(preemption_args(pod, **victims), scene.context)
    return json.loads(answer.body)["NodeNameToMetaVictims"]


def test_a_node_where_the_victims_make_room_is_kept_as_it_came():
    """trap 2: preemption goes on working, since counts stay visible to kube-scheduler."""
    scene = Scene().pool(n1=1, n2=2)
    scene.bound("a", "n1", "GPU-n1-0")
    scene.bound("b", "n2", "GPU-n2-0")
    scene.bound("c", "n2", "GPU-n2-1")
    reply = kept(scene, a_wire_pod(whole=1), n1=["uid-a"], n2=["uid-b", "uid-c"])
    assert reply == {
        "n1": {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 0},
        "n2": {"Pods": [{"UID": "uid-b"}, {"UID": "uid-c"}], "NumPDBViolations": 1},
    }


def test_a_node_where_others_hold_the_rest_is_dropped():
    scene = Scene().pool(n1=2, n2=2)
    scene.bound("a", "n1", "GPU-n1-0")
    scene.bound("b", "n2", "GPU-n2-0")
    scene.held("waiting", 1, "n1")
    reply = kept(scene, a_wire_pod(whole=2), n1=["uid-a"], n2=["uid-b"])
    assert list(reply) == ["n2"]


def test_the_pods_own_hold_counts_as_room():
    scene = Scene().pool(n1=2)
    scene.hold("p", 1, "n1")
    scene.bound("a", "n1", "GPU-n1-1")
    assert list(kept(scene, a_wire_pod("p", whole=2), n1=["uid-a"])) == ["n1"]


def test_a_victim_whose_binding_the_watch_has_not_shown_yet_counts_as_gone():
    scene = Scene().pool(n1=1)
    scene.hold("a", 1, "n1")
    assert list(kept(scene, a_wire_pod(whole=1), n1=["uid-a"])) == ["n1"]


def test_a_faulted_device_makes_no_room():
    scene = Scene().pool(n1=1)
    scene.bound("a", "n1", "GPU-n1-0")
    scene.allocation_state.index.replace_device(a_device("n1", 0, is_faulted=True))
    assert kept(scene, a_wire_pod(whole=1), n1=["uid-a"]) == {}


def test_a_pod_on_unknown_devices_has_to_go_too():
    scene = Scene().pool(n1=2)
    scene.bound("a", "n1", "GPU-n1-0")
    scene.bound("stranger", "n1")
    assert kept(scene, a_wire_pod(whole=1), n1=["uid-a"]) == {}
    assert list(kept(scene, a_wire_pod(whole=1), n1=["uid-a", "uid-stranger"])) == ["n1"]


def test_a_node_that_is_not_in_the_pool_is_dropped():
    scene = Scene().pool(n1=1)
    scene.bound("a", "n1", "GPU-n1-0")
    assert kept(scene, a_wire_pod(whole=1), elsewhere=["uid-a"]) == {}


def test_nobody_is_evicted_for_a_pod_that_is_bound_already():
    scene = Scene().pool(n1=1, n2=1)
    scene.bound("p", "n1", "GPU-n1-0")
    scene.bound("a", "n2", "GPU-n2-0")
    assert kept(scene, a_wire_pod("p", whole=1), n2=["uid-a"]) == {}


def test_a_pod_of_no_pool_gets_its_victims_back():
    scene = Scene()
    reply = kept(scene, a_wire_pod(), n1=["u1"], n2=["u2"])
    assert [item["Pods"] for item in reply.values()] == [[{"UID": "u1"}], [{"UID": "u2"}]]


def test_a_node_without_victims_never_comes_back():
    """kube-scheduler takes one in the reply for an error of the whole call."""
    scene = Scene().pool(n1=1)
    assert kept(scene, a_wire_pod(whole=1), n1=[]) == {}
    assert kept(scene, a_wire_pod(), n1=[]) == {}


def test_nobody_is_evicted_while_we_do_not_know():
    scene = Scene().pool(n1=1)
    scene.bound("a", "n1", "GPU-n1-0")
    assert kept(scene, a_wire_pod(nowhere=1), n1=["uid-a"]) == {}
    scene.is_ready = False
    answer = preempt(preemption_args(a_wire_pod(whole=1), n1=["uid-a"]), scene.context)
    assert json.loads(answer.body) == {"NodeNameToMetaVictims": {}}
    assert answer.outcome == "not_ready"


def test_asking_evicts_nobody():
    scene = Scene().pool(n1=1)
    scene.bound("a", "n1", "GPU-n1-0")
    kept(scene, a_wire_pod(whole=1), n1=["uid-a"])
    assert scene.free("n1") == 0

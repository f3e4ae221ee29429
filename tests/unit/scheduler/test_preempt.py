"""preempt: evictions that would not help are called off."""

import json
from typing import Any

from scheduler.extender import preempt
from tests.support.builders import a_device
from tests.support.scheduling import ExtenderSetup, a_wire_pod, preemption_args


def kept(setup: ExtenderSetup, pod: dict[str, Any], **victims: list[str]) -> Any:
    answer = preempt(preemption_args(pod, **victims), setup.context)
    return json.loads(answer.body)["NodeNameToMetaVictims"]


def test_a_node_where_the_victims_make_room_is_kept_as_it_came():
    """Lesson 23: preemption goes on working, since counts stay visible to kube-scheduler."""
    setup = ExtenderSetup().pool(n1=1, n2=2)
    setup.bound("a", "n1", "GPU-n1-0")
    setup.bound("b", "n2", "GPU-n2-0")
    setup.bound("c", "n2", "GPU-n2-1")
    reply = kept(setup, a_wire_pod(whole=1), n1=["uid-a"], n2=["uid-b", "uid-c"])
    assert reply == {
        "n1": {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 0},
        "n2": {"Pods": [{"UID": "uid-b"}, {"UID": "uid-c"}], "NumPDBViolations": 1},
    }


def test_a_node_where_others_reservation_the_rest_is_dropped():
    setup = ExtenderSetup().pool(n1=2, n2=2)
    setup.bound("a", "n1", "GPU-n1-0")
    setup.bound("b", "n2", "GPU-n2-0")
    setup.reserve_and_observe("waiting", 1, "n1")
    reply = kept(setup, a_wire_pod(whole=2), n1=["uid-a"], n2=["uid-b"])
    assert list(reply) == ["n2"]


def test_the_pods_own_reservation_counts_as_room():
    setup = ExtenderSetup().pool(n1=2)
    setup.reserve("p", 1, "n1")
    setup.bound("a", "n1", "GPU-n1-1")
    assert list(kept(setup, a_wire_pod("p", whole=2), n1=["uid-a"])) == ["n1"]


def test_a_victim_whose_binding_the_watch_has_not_shown_yet_counts_as_gone():
    setup = ExtenderSetup().pool(n1=1)
    setup.reserve("a", 1, "n1")
    assert list(kept(setup, a_wire_pod(whole=1), n1=["uid-a"])) == ["n1"]


def test_a_faulted_device_makes_no_room():
    setup = ExtenderSetup().pool(n1=1)
    setup.bound("a", "n1", "GPU-n1-0")
    setup.allocation_state.index.replace_device(a_device("n1", 0, is_faulted=True))
    assert kept(setup, a_wire_pod(whole=1), n1=["uid-a"]) == {}


def test_a_pod_on_unknown_devices_has_to_go_too():
    setup = ExtenderSetup().pool(n1=2)
    setup.bound("a", "n1", "GPU-n1-0")
    setup.bound("stranger", "n1")
    assert kept(setup, a_wire_pod(whole=1), n1=["uid-a"]) == {}
    assert list(kept(setup, a_wire_pod(whole=1), n1=["uid-a", "uid-stranger"])) == ["n1"]


def test_a_node_that_is_not_in_the_pool_is_dropped():
    setup = ExtenderSetup().pool(n1=1)
    setup.bound("a", "n1", "GPU-n1-0")
    assert kept(setup, a_wire_pod(whole=1), elsewhere=["uid-a"]) == {}


def test_nobody_is_evicted_for_a_pod_that_is_bound_already():
    setup = ExtenderSetup().pool(n1=1, n2=1)
    setup.bound("p", "n1", "GPU-n1-0")
    setup.bound("a", "n2", "GPU-n2-0")
    assert kept(setup, a_wire_pod("p", whole=1), n2=["uid-a"]) == {}


def test_a_pod_of_no_pool_gets_its_victims_back():
    setup = ExtenderSetup()
    reply = kept(setup, a_wire_pod(), n1=["u1"], n2=["u2"])
    assert [item["Pods"] for item in reply.values()] == [[{"UID": "u1"}], [{"UID": "u2"}]]


def test_a_node_without_victims_never_comes_back():
    """kube-scheduler takes one in the reply for an error of the whole call."""
    setup = ExtenderSetup().pool(n1=1)
    assert kept(setup, a_wire_pod(whole=1), n1=[]) == {}
    assert kept(setup, a_wire_pod(), n1=[]) == {}


def test_nobody_is_evicted_while_we_do_not_know():
    setup = ExtenderSetup().pool(n1=1)
    setup.bound("a", "n1", "GPU-n1-0")
    assert kept(setup, a_wire_pod(nowhere=1), n1=["uid-a"]) == {}
    setup.is_ready = False
    answer = preempt(preemption_args(a_wire_pod(whole=1), n1=["uid-a"]), setup.context)
    assert json.loads(answer.body) == {"NodeNameToMetaVictims": {}}
    assert answer.outcome == "not_ready"


def test_asking_evicts_nobody():
    setup = ExtenderSetup().pool(n1=1)
    setup.bound("a", "n1", "GPU-n1-0")
    kept(setup, a_wire_pod(whole=1), n1=["uid-a"])
    assert setup.free("n1") == 0

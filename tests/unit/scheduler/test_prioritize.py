"""prioritize: which of the nodes that fit is best."""

import json
from typing import Any

from api.kinds.gpupool import Strategy
from api.names import DeviceName
from scheduler.extender import filter_nodes, prioritize
from tests.support.builders import a_pool
from tests.support.scheduling import Scene, a_wire_pod, extender_args


def scores(scene: Scene, pod: dict[str, Any], *names: str) -> dict[str, int]:
    reply = json.loads(prioritize(extender_args(pod, *names), scene.context).body)
    return {item["Host"]: item["Score"] for item in reply}


def outcome(scene: Scene, pod: dict[str, Any], *names: str) -> str:
    return prioritize(extender_args(pod, *names), scene.context).outcome


def half_full_and_empty(strategy: Strategy) -> Scene:
    scene = Scene().pool(a_pool(strategy=strategy), half=4, empty=4)
    scene.bound("a", "half", "GPU-half-0", "GPU-half-1")
    return scene


def test_bin_pack_prefers_the_fuller_node():
    found = scores(half_full_and_empty(Strategy.BIN_PACK), a_wire_pod(whole=2), "half", "empty")
    assert found["half"] > found["empty"]


def test_spread_prefers_the_emptier_node():
    found = scores(half_full_and_empty(Strategy.SPREAD), a_wire_pod(whole=2), "half", "empty")
    assert found["half"] < found["empty"]


def test_the_node_of_the_pods_own_hold_is_best_of_all():
    scene = half_full_and_empty(Strategy.BIN_PACK)
    scene.hold("p", 2, "empty")
    found = scores(scene, a_wire_pod("p", whole=2), "half", "empty")
    assert found == {"half": 9, "empty": 10}
    assert outcome(scene, a_wire_pod("p", whole=2), "empty") == "fits"


def test_a_hold_that_cannot_serve_the_pod_any_more_is_worth_nothing():
    scene = Scene().pool(n1=2, n2=4)
    scene.hold("p", 2, "n1")
    found = scores(scene, a_wire_pod("p", whole=4), "n1", "n2")
    assert found == {"n1": 0, "n2": 9}


def test_nodes_that_do_not_fit_score_nothing():
    scene = Scene().pool(small=1, big=2)
    found = scores(scene, a_wire_pod(whole=2), "small", "big", "stranger")
    assert found == {"small": 0, "big": 9, "stranger": 0}
    assert outcome(scene, a_wire_pod(whole=2), "small") == "none_fits"


def test_where_we_have_no_opinion_every_node_scores_nothing():
    scene = Scene().pool(n1=1)
    assert scores(scene, a_wire_pod(), "n1") == {"n1": 0}
    assert outcome(scene, a_wire_pod(), "n1") == "not_ours"
    assert scores(scene, a_wire_pod(nowhere=1), "n1") == {"n1": 0}
    assert outcome(scene, a_wire_pod(nowhere=1), "n1") == "impossible"
    scene.is_ready = False
    assert scores(scene, a_wire_pod(whole=1), "n1") == {"n1": 0}
    assert outcome(scene, a_wire_pod(whole=1), "n1") == "not_ready"


async def test_the_node_of_a_binding_in_doubt_is_best():
    scene = Scene().pool(n1=1, n2=1)
    scene.bound("p", "n1", "GPU-n1-0")
    assert scores(scene, a_wire_pod("p", whole=1), "n1", "n2")["n1"] == 10


def passing(scene: Scene, pod: dict[str, Any], *names: str) -> list[str]:
    reply = json.loads(filter_nodes(extender_args(pod, *names), scene.context).body)
    found: list[str] = reply["NodeNames"]
    return found


def a_mixed_scene() -> Scene:
    scene = half_full_and_empty(Strategy.BIN_PACK)
    scene.pool(small=1)
    return scene


def test_scores_after_filter_are_those_without_it():
    pod, names = a_wire_pod(whole=2), ("empty", "small", "half", "stranger")
    scene = a_mixed_scene()
    passed = passing(scene, pod, *names)
    assert passed == ["empty", "half"]
    for asked in (passed, names):
        assert scores(scene, pod, *asked) == scores(a_mixed_scene(), pod, *asked)


def test_a_score_that_changed_after_filter_is_the_new_one():
    scene, pod = half_full_and_empty(Strategy.BIN_PACK), a_wire_pod(whole=1)
    assert passing(scene, pod, "half", "empty") == ["half", "empty"]
    scene.bound("b", "empty", "GPU-empty-0", "GPU-empty-1", "GPU-empty-2")
    found = scores(scene, pod, "half", "empty")
    assert found["empty"] > found["half"]


def test_a_node_that_left_the_pool_after_filter_scores_nothing():
    scene, pod = half_full_and_empty(Strategy.BIN_PACK), a_wire_pod(whole=1)
    assert passing(scene, pod, "half", "empty") == ["half", "empty"]
    for number in range(4):
        scene.allocation_state.index.discard_device(DeviceName(f"empty-{number}"))
    assert scores(scene, pod, "half", "empty")["empty"] == 0

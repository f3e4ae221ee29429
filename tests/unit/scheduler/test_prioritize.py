"""prioritize: which of the nodes that fit is best."""

import json
from typing import Any

from api.kinds.gpupool import Strategy
from api.names import DeviceName, NodeName
from pool.placement.fragmentation.placement_costs import PlacementCosts
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from scheduler.extender import filter_nodes, prioritize
from tests.support.builders import a_demand, a_pool
from tests.support.scheduling import ExtenderSetup, a_wire_pod, extender_args


def scores(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> dict[str, int]:
    reply = json.loads(prioritize(extender_args(pod, *names), setup.context).body)
    return {item["Host"]: item["Score"] for item in reply}


def outcome(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> str:
    return prioritize(extender_args(pod, *names), setup.context).outcome


def half_full_and_empty(strategy: Strategy) -> ExtenderSetup:
    setup = ExtenderSetup().pool(a_pool(strategy=strategy), half=4, empty=4)
    setup.bound("a", "half", "GPU-half-0", "GPU-half-1")
    return setup


def test_bin_pack_prefers_the_fuller_node():
    found = scores(half_full_and_empty(Strategy.BIN_PACK), a_wire_pod(whole=2), "half", "empty")
    assert found["half"] > found["empty"]


def test_spread_prefers_the_emptier_node():
    found = scores(half_full_and_empty(Strategy.SPREAD), a_wire_pod(whole=2), "half", "empty")
    assert found["half"] < found["empty"]


def test_the_node_of_the_pods_own_reservation_is_best_of_all():
    setup = half_full_and_empty(Strategy.BIN_PACK)
    setup.reserve("p", 2, "empty")
    found = scores(setup, a_wire_pod("p", whole=2), "half", "empty")
    assert found == {"half": 9, "empty": 10}
    assert outcome(setup, a_wire_pod("p", whole=2), "empty") == "fits"


def test_a_reservation_that_cannot_serve_the_pod_any_more_is_worth_nothing():
    setup = ExtenderSetup().pool(n1=2, n2=4)
    setup.reserve("p", 2, "n1")
    found = scores(setup, a_wire_pod("p", whole=4), "n1", "n2")
    assert found == {"n1": 0, "n2": 9}


def test_least_fragmentation_puts_one_node_first_by_the_demand_on_the_pool():
    """By free units alone n1 and n3 are equal; four devices in one place are what large pods need."""
    setup = ExtenderSetup().pool(n1=4, n2=8, n3=4)
    setup.bound("a", "n2", *(f"GPU-n2-{number}" for number in range(3)))
    names = ("n1", "n2", "n3")
    assert scores(setup, a_wire_pod(whole=1), *names) == {"n1": 6, "n2": 5, "n3": 6}
    target = TargetWorkload(((TargetShape(0, 1000, 1), 8.0), (TargetShape(0, 1000, 4), 1.0)))
    index = setup.allocation_state.index
    index.rank(PlacementCosts(a_pool(), target))
    assert scores(setup, a_wire_pod(whole=1), *names) == {"n1": 6, "n2": 10, "n3": 6}
    assert scores(setup, a_wire_pod(whole=1), "n1", "n3") == {"n1": 10, "n3": 6}
    assert scores(setup, a_wire_pod(whole=8), *names) == dict.fromkeys(names, 0)


def best(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> dict[str, object]:
    """Return what the log line says of the strategy and of the best node."""
    facts = prioritize(extender_args(pod, *names), setup.context).facts
    return {key: facts[key] for key in ("node", "strategy", "value_lost") if key in facts}


def test_the_log_line_names_the_strategy_and_the_node_that_is_better_than_all_others():
    setup = half_full_and_empty(Strategy.BIN_PACK)
    packed = {"strategy": "BinPack"}
    assert best(setup, a_wire_pod(whole=2), "empty", "half") == packed
    assert best(setup, a_wire_pod(whole=2), "stranger") == {}
    assert best(setup, a_wire_pod(), "empty") == {}
    setup.reserve("p", 2, "empty")
    assert best(setup, a_wire_pod("p", whole=2), "half", "empty") == {"node": "empty"} | packed


def test_the_log_line_has_the_loss_by_which_a_node_is_the_best():
    setup = ExtenderSetup().pool(n1=4, n2=3)
    index = setup.allocation_state.index
    assert "value_lost" not in best(setup, a_wire_pod(whole=1), "n1", "n2")
    target = TargetWorkload(((TargetShape(0, 1000, 1), 8.0), (TargetShape(0, 1000, 4), 1.0)))
    index.rank(PlacementCosts(a_pool(), target))
    found = best(setup, a_wire_pod(whole=1), "n1", "n2")
    lost = index.state(a_pool().name).value_lost(a_demand(1), NodeName("n2"))
    assert found == {
        "node": "n2",
        "strategy": "LeastFragmentation",
        "value_lost": lost,
    }


def test_nodes_that_do_not_fit_score_nothing():
    setup = ExtenderSetup().pool(small=1, big=2)
    found = scores(setup, a_wire_pod(whole=2), "small", "big", "stranger")
    assert found == {"small": 0, "big": 9, "stranger": 0}
    assert outcome(setup, a_wire_pod(whole=2), "small") == "none_fits"


def test_where_we_have_no_opinion_every_node_scores_nothing():
    setup = ExtenderSetup().pool(n1=1)
    assert scores(setup, a_wire_pod(), "n1") == {"n1": 0}
    assert outcome(setup, a_wire_pod(), "n1") == "not_ours"
    assert scores(setup, a_wire_pod(nowhere=1), "n1") == {"n1": 0}
    assert outcome(setup, a_wire_pod(nowhere=1), "n1") == "impossible"
    setup.is_ready = False
    assert scores(setup, a_wire_pod(whole=1), "n1") == {"n1": 0}
    assert outcome(setup, a_wire_pod(whole=1), "n1") == "not_ready"


async def test_the_node_of_a_binding_in_doubt_is_best():
    setup = ExtenderSetup().pool(n1=1, n2=1)
    setup.bound("p", "n1", "GPU-n1-0")
    assert scores(setup, a_wire_pod("p", whole=1), "n1", "n2")["n1"] == 10


def passing(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> list[str]:
    reply = json.loads(filter_nodes(extender_args(pod, *names), setup.context).body)
    found: list[str] = reply["NodeNames"]
    return found


def a_mixed_setup() -> ExtenderSetup:
    setup = half_full_and_empty(Strategy.BIN_PACK)
    setup.pool(small=1)
    return setup


def test_scores_after_filter_are_those_without_it():
    pod, names = a_wire_pod(whole=2), ("empty", "small", "half", "stranger")
    setup = a_mixed_setup()
    passed = passing(setup, pod, *names)
    assert passed == ["empty", "half"]
    for asked in (passed, names):
        assert scores(setup, pod, *asked) == scores(a_mixed_setup(), pod, *asked)


def test_a_score_that_changed_after_filter_is_the_new_one():
    setup, pod = half_full_and_empty(Strategy.BIN_PACK), a_wire_pod(whole=1)
    assert passing(setup, pod, "half", "empty") == ["half", "empty"]
    setup.bound("b", "empty", "GPU-empty-0", "GPU-empty-1", "GPU-empty-2")
    found = scores(setup, pod, "half", "empty")
    assert found["empty"] > found["half"]


def test_a_node_that_left_the_pool_after_filter_scores_nothing():
    setup, pod = half_full_and_empty(Strategy.BIN_PACK), a_wire_pod(whole=1)
    assert passing(setup, pod, "half", "empty") == ["half", "empty"]
    for number in range(4):
        setup.allocation_state.index.discard_device(DeviceName(f"empty-{number}"))
    assert scores(setup, pod, "half", "empty")["empty"] == 0

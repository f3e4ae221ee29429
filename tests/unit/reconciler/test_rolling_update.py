"""Dead nodes are added to what a roll-out may take from the others."""

from typing import Any

import pytest

from manifests.node.agent_daemonset import build_node_agent
from manifests.node.detector_daemonset import build_node_detector
from manifests.node.device_plugin import WorkloadSettings, digest_of, signed
from reconciler.runtime.rolling_update import allowing_for_unready_nodes
from tests.support.builders import a_node

SETTINGS = WorkloadSettings(image="registry.example.com/gpu-control-plane:1.0")
LINUX = {"kubernetes.io/os": "linux"}
GPU = LINUX | {"gpu.deckhouse.io/present": "true"}
Json = dict[str, Any]


def limits(objects: list[Json], nodes: list[Any]) -> list[Any]:
    passing = allowing_for_unready_nodes(objects, nodes)
    return [item["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] for item in passing]


def a_list_of_nodes(ready: int, dead: int, labels: dict[str, str]) -> list[Any]:
    return [
        a_node(f"n{number}-{labels}", labels=labels, is_ready=number < ready)
        for number in range(ready + dead)
    ]


@pytest.mark.parametrize(
    ("ready", "dead", "expected"),
    [
        pytest.param(5, 0, "10%", id="none is dead"),
        pytest.param(4, 1, 2, id="one of five"),
        pytest.param(17, 3, 5, id="three of twenty"),
        pytest.param(0, 3, 4, id="all"),
        pytest.param(5_990, 10, 610, id="of thousands"),
    ],
)
def test_a_limit_allows_for_dead_nodes(ready: int, dead: int, expected: Any):
    nodes = a_list_of_nodes(ready, dead, GPU)
    assert limits(build_node_agent(SETTINGS), nodes) == [expected]


def test_only_nodes_that_the_daemon_set_selects_count():
    nodes = [*a_list_of_nodes(5, 0, GPU), *a_list_of_nodes(0, 50, LINUX)]
    assert limits(build_node_agent(SETTINGS), nodes) == ["10%"]
    assert limits(build_node_detector(SETTINGS), nodes) == [56]


def test_a_daemon_set_that_surges_a_new_one_and_other_objects_stay_as_they_are():
    (agent,) = build_node_agent(SETTINGS)
    surging = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}
    on_delete = {"type": "OnDelete"}
    others = [
        {**agent, "spec": {**agent["spec"], "updateStrategy": strategy}}
        for strategy in (surging, on_delete)
    ]
    config = signed({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {}})
    objects = [*others, config]
    assert allowing_for_unready_nodes(objects, a_list_of_nodes(8, 1, GPU)) == objects


def test_the_digest_follows_and_what_was_given_stays():
    (agent,) = build_node_agent(SETTINGS)
    before = digest_of(agent)
    first, second = (
        allowing_for_unready_nodes([agent], a_list_of_nodes(8, dead, GPU))[0] for dead in (1, 2)
    )
    assert digest_of(agent) == before
    assert len({before, digest_of(first), digest_of(second)}) == 3
    assert first["spec"]["template"] == agent["spec"]["template"]

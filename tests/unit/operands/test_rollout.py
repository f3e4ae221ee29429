"""Readiness of objects by kind."""

import pytest

from operands.rollout import unready_reason


def a_daemon_set(strategy: str = "RollingUpdate", /, **status: int):
    return {
        "metadata": {"generation": 2},
        "spec": {"updateStrategy": {"type": strategy}},
        "status": {"observedGeneration": 2, **status},
    }


ALL = {
    "desiredNumberScheduled": 3,
    "currentNumberScheduled": 3,
    "updatedNumberScheduled": 3,
    "numberAvailable": 3,
}


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        pytest.param(a_daemon_set(), "", id="no node"),
        pytest.param(a_daemon_set(**ALL), "", id="all"),
        pytest.param(
            a_daemon_set(**ALL | {"observedGeneration": 1}),
            "its last change is not observed yet",
            id="not observed",
        ),
        pytest.param(
            a_daemon_set(**ALL | {"numberAvailable": 1}),
            "1 of 3 nodes have an available pod",
            id="not available",
        ),
        pytest.param(
            a_daemon_set(**ALL | {"updatedNumberScheduled": 2}),
            "2 of 3 nodes have a pod of the last template",
            id="not updated",
        ),
        pytest.param(
            a_daemon_set("OnDelete", **ALL | {"updatedNumberScheduled": 0}),
            "",
            id="updated on deletion",
        ),
        pytest.param(
            a_daemon_set(**ALL | {"currentNumberScheduled": 0}),
            "0 of 3 nodes have a pod",
            id="no pods",
        ),
    ],
)
def test_a_daemon_set_is_ready_when_all_of_its_nodes_have_an_available_pod(live, expected: str):
    assert unready_reason("DaemonSet", live) == expected


def test_another_object_is_ready_when_it_exists():
    assert unready_reason("Service", {"metadata": {}}) == ""

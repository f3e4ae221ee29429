"""Readiness of DaemonSets, and how one whose selector differs is replaced."""

import pytest

from operands.rollout import selector_migration_step, unready_reason


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
    assert unready_reason(live) == expected


def selecting(selector: dict[str, str], labels: dict[str, str], **status: int):
    found = a_daemon_set(**status)
    template = {"metadata": {"labels": labels}, "spec": {}}
    return found | {
        "spec": {**found["spec"], "selector": {"matchLabels": selector}, "template": template}
    }


OLD, NEW = {"name": "gfd", "component": "operand"}, {"app": "gfd"}
DESIRED = selecting(NEW, NEW)


def test_pods_get_the_labels_of_both_selectors_before_they_are_handed_over():
    found = selecting(OLD, OLD, **ALL)
    step = selector_migration_step(DESIRED, found)
    assert not isinstance(step, str)
    assert step["spec"]["selector"] == {"matchLabels": OLD}
    assert step["spec"]["template"]["metadata"]["labels"] == NEW | OLD
    rolling = selecting(OLD, NEW | OLD, **ALL | {"updatedNumberScheduled": 1})
    assert selector_migration_step(DESIRED, rolling) == step
    assert selector_migration_step(DESIRED, selecting(OLD, NEW | OLD, **ALL)) == "Orphan"
    assert selector_migration_step(DESIRED, selecting(NEW, NEW | OLD, **ALL)) == DESIRED


def test_pods_that_cannot_have_both_labels_go():
    assert (
        selector_migration_step(DESIRED, selecting({"app": "other"}, {"app": "other"}))
        == "Foreground"
    )

"""Waiting pods that no node would help: nothing is asked for, and the reason is told."""

from typing import Any

import pytest

from api.foreign.core import NodeSelectorTerm
from api.meta import SelectorOperator, SelectorRequirement
from api.names import NodeName
from autoscaling.scaling_model import ScalingPlan, WaitReason
from pool.allocation_state import AllocationState
from pool.model import PodSelection
from tests.support.builders import a_pool
from tests.support.scaling_plans import a_waiting_pod, add_node, an_index, planned, some_parameters


def reason_of(plan: ScalingPlan) -> WaitReason:
    (wait,) = plan.waits.values()
    assert len(wait.message) > 20
    return wait.reason


def requirement(
    key: str, *values: str, operator: SelectorOperator = SelectorOperator.IN
) -> SelectorRequirement:
    return SelectorRequirement(key, operator, list(values) or None)


def test_gates_of_others_come_first():
    """Weak point 18: a queue or quota that has not admitted a pod yet keeps it from scaling."""
    plan = planned(some_parameters(), [a_waiting_pod(is_gated=True)])
    assert reason_of(plan) is WaitReason.OTHER_GATES
    assert not plan.requests


def test_a_pod_for_which_others_are_evicted_waits_for_these():
    """Weak point 18: preemption in progress asks for no node."""
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, used=8)
    pod = a_waiting_pod(units=8, awaits_capacity=False, nominated_node=NodeName("n1"))
    plan = planned(some_parameters(), [pod], state.index)
    assert reason_of(plan) is WaitReason.PREEMPTING
    assert not plan.requests


@pytest.mark.parametrize("change", [{"is_cordoned": True}, {"is_leaving": True}, None])
def test_a_nomination_to_a_node_that_takes_no_pods_does_not_count(change: dict[str, Any] | None):
    state = AllocationState(an_index())
    if change is not None:
        add_node(state, "n1", devices=8, used=8, **change)
    pod = a_waiting_pod(units=8, nominated_node=NodeName("n1"))
    assert len(planned(some_parameters(), [pod], state.index).requests) == 1


@pytest.mark.parametrize(
    "selection",
    [
        pytest.param(PodSelection((("kubernetes.io/hostname", "n1"),)), id="node selector"),
        pytest.param(
            PodSelection(
                affinity=(NodeSelectorTerm(match_fields=[requirement("metadata.name", "n1")]),)
            ),
            id="metadata.name",
        ),
        pytest.param(
            PodSelection(
                affinity=(
                    NodeSelectorTerm(
                        match_expressions=[requirement("kubernetes.io/hostname", "n1")]
                    ),
                )
            ),
            id="hostname",
        ),
    ],
)
def test_a_pod_that_names_its_node_asks_for_none(selection: PodSelection):
    """Weak point 18: a pinned pod would not go to a new node."""
    plan = planned(some_parameters(), [a_waiting_pod(selection=selection)])
    assert reason_of(plan) is WaitReason.PINNED
    assert not plan.requests


@pytest.mark.parametrize("pod", [{}, {"created": "2026-01-01T04:00:00Z"}], ids=["", "clock behind"])
def test_something_else_than_devices_keeps_a_pod_waiting(pod: dict[str, Any]):
    """Weak point 18: units are free, so scheduling is not caused by devices."""
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8)
    plan = planned(some_parameters(), [a_waiting_pod(awaits_capacity=False, **pod)], state.index)
    assert reason_of(plan) is WaitReason.NOT_DEVICES
    assert not plan.requests


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"awaits_capacity": True}, id="gated"),
        pytest.param({"awaits_capacity": False, "created": "2026-01-01T00:59:30Z"}, id="young"),
        pytest.param({"awaits_capacity": False, "created": "yesterday"}, id="unknown age"),
    ],
)
def test_a_pod_that_is_about_to_get_free_units_is_told_nothing(changes: dict[str, Any]):
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8)
    assert planned(some_parameters(), [a_waiting_pod(**changes)], state.index) == ScalingPlan()


@pytest.mark.parametrize("change", [{"is_in_maintenance": True}, {"is_terminating": True}])
def test_a_closed_pool_says_so(change: dict[str, Any]):
    plan = planned(some_parameters(pool=a_pool(**change)), [a_waiting_pod()])
    assert reason_of(plan) is WaitReason.POOL_CLOSED


def test_a_pod_with_its_own_selector_still_gets_free_units_that_satisfy_it():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, labels={"rack": "1"})
    here = a_waiting_pod("here", selection=PodSelection((("rack", "1"),)))
    there = a_waiting_pod("there", selection=PodSelection((("rack", "2"),)))
    plan = planned(some_parameters(), [here, there], state.index)
    assert list(plan.waits) == [there.uid]
    assert reason_of(plan) is WaitReason.NO_SHAPE

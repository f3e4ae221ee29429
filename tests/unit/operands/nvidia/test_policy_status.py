"""Status of a policy: states with reasons and times, and the two conditions of upstream, always together."""

import datetime as dt
from typing import Any

import pytest

from api.kinds.nvidia.operator_status import StateReadiness, StateStatus
from operands.nvidia.daemon_set_readiness import DaemonSetReadiness
from operands.nvidia.policy_status import (
    BadReason,
    GoodReason,
    OverallReadiness,
    StateFacts,
    StateReason,
    operator_conditions,
    overall_readiness,
    state_status,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(hours=1)
WAITING = DaemonSetReadiness(name="d", nodes_ready=1, nodes_total=2, reason="1 of 2")


@pytest.mark.parametrize(
    ("facts", "readiness", "reason"),
    [
        ({}, StateReadiness.READY, StateReason.READY),
        ({"is_enabled": False}, StateReadiness.DISABLED, StateReason.DISABLED),
        (
            {"is_enabled": False, "left": ("DaemonSet d",)},
            StateReadiness.NOT_READY,
            StateReason.BEING_REMOVED,
        ),
        ({"daemon_sets": (WAITING,)}, StateReadiness.NOT_READY, StateReason.PODS_NOT_READY),
        (
            {"fault": (StateReason.OBJECT_NOT_APPLIED, "why"), "daemon_sets": (WAITING,)},
            StateReadiness.NOT_READY,
            StateReason.OBJECT_NOT_APPLIED,
        ),
    ],
)
def test_a_state_has_one_reason(
    facts: dict[str, Any], readiness: StateReadiness, reason: StateReason
):
    """Lesson 49."""
    found = state_status(StateFacts(name="s", **facts), current=None, now=NOW)
    assert (found.state, found.reason) == (readiness, reason.value)


def test_the_time_of_a_state_moves_with_its_readiness_only():
    first = state_status(StateFacts(name="s", daemon_sets=(WAITING,)), current=None, now=NOW)
    fault = (StateReason.OBJECT_NOT_APPLIED, "why")
    second = state_status(StateFacts(name="s", fault=fault), current=[first], now=LATER)
    assert (second.since, second.reason) == (first.since, "ObjectNotApplied")
    assert state_status(StateFacts(name="s"), current=[second], now=LATER).since != first.since
    assert (first.nodes_ready, first.nodes_total) == (1, 2)


def a_state(readiness: StateReadiness, name: str = "s") -> StateStatus:
    return StateStatus(name=name, state=readiness, message="why")


@pytest.mark.parametrize(
    ("states", "options", "reason"),
    [
        ([StateReadiness.READY], {}, GoodReason.RECONCILED),
        ([StateReadiness.DISABLED], {"has_gpu_nodes": False}, GoodReason.NO_GPU_NODES),
        ([], {"has_nfd_labels": False, "has_gpu_nodes": False}, GoodReason.NFD_LABELS_MISSING),
        ([StateReadiness.READY], {"upgrading": ("n",)}, BadReason.DRIVER_NOT_READY),
        ([StateReadiness.NOT_READY], {"upgrading": ("n",)}, BadReason.OPERAND_NOT_READY),
        ([], {"unlabelled": ("n",), "has_gpu_nodes": False}, BadReason.OPERAND_NOT_READY),
    ],
)
def test_the_verdict_is_that_of_the_gpu_operator(
    states: list[StateReadiness], options: dict[str, Any], reason: GoodReason | BadReason
):
    given = {"has_nfd_labels": True, "has_gpu_nodes": True, **options}
    assert (
        overall_readiness("ClusterPolicy", [a_state(state) for state in states], **given).reason
        is reason
    )


def test_what_is_not_ready_is_said_with_the_first_cause_667():
    """Lesson 49."""
    states = [a_state(StateReadiness.NOT_READY, "a"), a_state(StateReadiness.NOT_READY, "b")]
    overall = overall_readiness("ClusterPolicy", states, has_nfd_labels=True, has_gpu_nodes=True)
    assert overall.message == "ClusterPolicy is not ready; states not ready: [a b]. a: why"


@pytest.mark.parametrize(
    ("overall", "want"),
    [
        (
            OverallReadiness(reason=GoodReason.RECONCILED, message="m"),
            [("Ready", "True", "Reconciled", "m"), ("Error", "False", "Ready", "")],
        ),
        (
            OverallReadiness(reason=BadReason.OPERAND_NOT_READY, message="m"),
            [("Ready", "False", "Error", ""), ("Error", "True", "OperandNotReady", "m")],
        ),
    ],
)
def test_both_conditions_say_the_same(
    overall: OverallReadiness, want: list[tuple[str, str, str, str]]
):
    found = operator_conditions(overall, current=None, generation=3, now=NOW)
    assert [(item.type, item.status, item.reason, item.message) for item in found] == want
    assert operator_conditions(overall, current=found, generation=3, now=LATER) == found

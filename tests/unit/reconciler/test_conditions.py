"""Conditions: the transition time is that of the status, and nobody trips over a bad one."""

import datetime as dt

import pytest

from api.meta import Condition
from reconciler.runtime.conditions import condition, condition_of, since, without
from telemetry.conditions import PoolCondition, PoolReady

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
BEFORE = "2026-01-01T00:00:00Z"


def ready(status: str = "True", at: str = BEFORE) -> Condition:
    return Condition(
        type="Ready", status="True" if status == "True" else "False", last_transition_time=at
    )


@pytest.mark.parametrize(
    ("shown", "is_true", "at"),
    [
        pytest.param([], True, "2026-01-02T00:00:00Z", id="new"),
        pytest.param([ready()], True, BEFORE, id="the same status"),
        pytest.param([ready()], False, "2026-01-02T00:00:00Z", id="another status"),
    ],
)
def test_the_transition_time_moves_with_the_status_only(shown, is_true, at):
    found = condition(
        PoolCondition.READY,
        PoolReady.SERVING,
        "another text",
        is_true=is_true,
        shown=shown,
        generation=2,
        now=NOW,
    )
    assert (found.last_transition_time, found.observed_generation) == (at, 2)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (None, None),
        (ready("False"), None),
        (ready(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (ready(at="yesterday"), None),
        (ready(at=""), None),
    ],
)
def test_since_when_a_condition_is_true(shown, wanted):
    assert since(shown) == wanted


def test_conditions_are_found_and_left_out_by_type():
    other = Condition(type="Other", status="True")
    assert condition_of([other, ready()], PoolCondition.READY) == ready()
    assert condition_of(None, PoolCondition.READY) is None
    assert without([other, ready()], [PoolCondition.READY]) == [other]

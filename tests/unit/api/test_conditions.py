"""Conditions: the transition time is that of the status; a malformed time is ignored."""

import datetime as dt

import pytest

from api import status_conditions
from api.meta import Condition
from telemetry.conditions import PoolCondition, PoolReady

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
BEFORE = "2026-01-01T00:00:00Z"


def ready(status: str = "True", at: str = BEFORE) -> Condition:
    return Condition(
        type="Ready", status="True" if status == "True" else "False", last_transition_time=at
    )


@pytest.mark.parametrize(
    ("current", "status", "at"),
    [
        pytest.param([], True, "2026-01-02T00:00:00Z", id="new"),
        pytest.param([ready()], True, BEFORE, id="the same status"),
        pytest.param([ready()], False, "2026-01-02T00:00:00Z", id="another status"),
        pytest.param([ready()], "Unknown", "2026-01-02T00:00:00Z", id="unknown"),
    ],
)
def test_the_transition_time_moves_with_the_status_only(current, status, at):
    found = status_conditions.new_condition(
        PoolCondition.READY,
        PoolReady.SERVING,
        "another text",
        status=status,
        current=current,
        generation=2,
        now=NOW,
    )
    assert (found.last_transition_time, found.observed_generation) == (at, 2)


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        pytest.param("True", PoolReady.SERVING, "", id="the same"),
        pytest.param("True", PoolReady.NO_DEVICES, "better words", id="another reason"),
        pytest.param("False", PoolReady.SERVING, "better words", id="another status"),
    ],
)
def test_better_words_alone_change_nothing(status, reason, text):
    before = Condition(type="Ready", status="True", reason="Serving", message="")
    for keeps_text, message in ((True, text), (False, "better words")):
        found = status_conditions.new_condition(
            PoolCondition.READY,
            reason,
            "better words",
            status=status,
            current=[before],
            generation=1,
            now=NOW,
            keeps_text=keeps_text,
        )
        assert found.message == message


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (None, None),
        (ready("False"), None),
        (ready(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (ready(at="yesterday"), None),
        (ready(at=""), None),
    ],
)
def test_since_when_a_condition_is_true(current, expected):
    assert status_conditions.true_since(current) == expected


def test_conditions_are_found_and_left_out_by_type():
    other = Condition(type="Other", status="True")
    assert status_conditions.find_condition([other, ready()], PoolCondition.READY) == ready()
    assert status_conditions.find_condition(None, PoolCondition.READY) is None
    assert status_conditions.without_conditions([other, ready()], [PoolCondition.READY]) == [other]
    assert status_conditions.is_condition_true([ready()], PoolCondition.READY)
    assert not status_conditions.is_condition_true([ready("False")], PoolCondition.READY)
    assert not status_conditions.is_condition_true([other], PoolCondition.READY)

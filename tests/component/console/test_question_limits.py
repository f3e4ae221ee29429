"""The share of the process that questions about pods may take."""

import asyncio

import pytest

from console.console_data import PodTrial
from console.edge.console_answers import RefusedError
from console.edge.console_application import (
    ALL_BURST,
    MAX_VIEWERS,
    VIEWER_A_SECOND,
    VIEWER_BURST,
    QuestionLimits,
    cost_of_trial,
)
from console.edge.questions import MAX_CORDONED
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

DEAREST = PodTrial(pool="p", units=1, times=1_000, cordoned=("n",) * MAX_CORDONED)


def answered(limits: QuestionLimits, viewer: str, cost: float) -> bool:
    try:
        limits.take(viewer, cost)
    except RefusedError:
        return False
    return True


def test_dearest_question_can_be_asked_and_takes_the_place_of_many() -> None:
    assert 20 < cost_of_trial(DEAREST) <= VIEWER_BURST
    assert cost_of_trial(PodTrial(pool="p", units=1)) < 1.1


async def test_viewer_has_its_share_whatever_others_ask() -> None:
    limits = QuestionLimits(LoopClock())
    asked = [answered(limits, "alice", 1) for _ in range(VIEWER_BURST + 1)]
    assert asked == [True] * VIEWER_BURST + [False]
    assert answered(limits, "bob", VIEWER_BURST)
    await asyncio.sleep(1)
    asked = [answered(limits, "alice", 1) for _ in range(VIEWER_BURST)]
    assert asked.count(True) == VIEWER_A_SECOND


async def test_all_viewers_together_have_a_bound_and_are_known_in_a_bounded_number() -> None:
    limits = QuestionLimits(LoopClock())
    asked = [answered(limits, f"viewer-{number}", 1) for number in range(MAX_VIEWERS + 10)]
    assert asked.count(True) == ALL_BURST
    assert len(limits) == MAX_VIEWERS

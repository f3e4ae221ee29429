"""When a card is planned again, and when somebody is told of what holds it up."""

import pytest

from agent.mig.planner import HeldUp, HoldUp, WantedLayout
from agent.mig.progress import EVERY_S, PATIENCE_S, REFUSED_CAP_S, WHILE_IN_USE_S, Progress, Wish

REFUSED = HeldUp(HoldUp.REFUSED, "no")
IN_USE = HeldUp(HoldUp.IN_USE, "pods")
RUNNING = HeldUp(HoldUp.RUNNING, "processes")


@pytest.fixture
def progress() -> Progress:
    return Progress(Wish("GPU-1", WantedLayout("1g.10gb")))


def test_a_card_is_planned_at_once_and_then_now_and_then(progress: Progress):
    assert not progress.waits(0.0)
    assert not progress.finish(0.0)
    assert progress.waits(EVERY_S - 1)
    assert not progress.waits(EVERY_S)


def test_it_is_told_that_a_card_is_as_wanted_after_a_change_once(progress: Progress):
    progress.begin()
    progress.step()
    assert progress.finish(0.0)
    assert not progress.finish(1.0)


def test_a_step_that_was_begun_and_refused_is_no_change(progress: Progress):
    progress.begin()
    was_cutting = progress.is_cutting
    progress.hold_up(REFUSED, 0.0)
    assert (was_cutting, progress.is_cutting) == (True, False)
    assert not progress.finish(1.0)


def test_pauses_after_refusals_grow_up_to_a_bound_and_begin_anew(progress: Progress):
    def pause() -> float:
        progress.hold_up(REFUSED, 100.0)
        return progress.next_at - 100.0

    assert pause() <= 1.0
    pauses = [pause() for _ in range(200)]
    assert max(pauses) <= REFUSED_CAP_S
    assert max(pauses) > REFUSED_CAP_S / 4
    progress.finish(100.0)
    assert pause() <= 1.0


def test_whoever_changes_between_kinds_of_use_is_told_of_after_one_wait(progress: Progress):
    ends = [IN_USE, RUNNING]
    told = [progress.hold_up(ends[at % 2], float(at)) for at in range(int(PATIENCE_S) + 1)]
    assert told == [False] * int(PATIENCE_S) + [True]


def test_the_wait_for_users_begins_with_them(progress: Progress):
    assert progress.hold_up(REFUSED, 0.0)
    assert not progress.hold_up(IN_USE, PATIENCE_S + 1)
    assert progress.hold_up(IN_USE, 2 * PATIENCE_S + 1)
    assert not progress.hold_up(IN_USE, 3 * PATIENCE_S)


@pytest.mark.parametrize(
    ("reason", "next_at", "is_at_once"),
    [
        (HoldUp.IN_USE, WHILE_IN_USE_S, True),
        (HoldUp.USE_UNKNOWN, WHILE_IN_USE_S, True),
        (HoldUp.RUNNING, WHILE_IN_USE_S, False),
        (HoldUp.RESET_NEEDED, EVERY_S, False),
        (HoldUp.LOST, EVERY_S, False),
    ],
)
def test_what_ends_by_itself_is_looked_at_more_often(
    progress: Progress, reason: HoldUp, next_at: float, is_at_once: bool
):
    progress.hold_up(HeldUp(reason, "so"), 0.0)
    assert progress.next_at == next_at
    assert progress.waits(0.1) != is_at_once


def test_a_lost_card_is_told_of_by_its_health(progress: Progress):
    assert not progress.hold_up(HeldUp(HoldUp.LOST, "gone"), 0.0)
    assert not progress.is_told

"""When a device is planned again, and when its obstacle is reported."""

import pytest

from agent.mig.partition_planner import Blocked, BlockReason, DesiredLayout
from agent.mig.progress import (
    EVERY_S,
    GRACE_S,
    REFUSED_CAP_S,
    WHILE_IN_USE_S,
    PartitionTarget,
    Progress,
)

REFUSED = Blocked(BlockReason.REFUSED, "no")
IN_USE = Blocked(BlockReason.IN_USE, "pods")
RUNNING = Blocked(BlockReason.RUNNING, "processes")


@pytest.fixture
def progress() -> Progress:
    return Progress(PartitionTarget("GPU-1", DesiredLayout((("1g.10gb", None),))))


def test_a_device_is_planned_at_once_and_then_now_and_then(progress: Progress):
    assert not progress.waits(0.0)
    assert not progress.finish(0.0)
    assert progress.waits(EVERY_S - 1)
    assert not progress.waits(EVERY_S)


def test_a_finished_change_is_reported_once(progress: Progress):
    progress.begin()
    progress.step()
    assert progress.finish(0.0)
    assert not progress.finish(1.0)


def test_a_step_that_was_begun_and_refused_is_no_change(progress: Progress):
    progress.begin()
    was_cutting = progress.is_partitioning
    progress.block(REFUSED, 0.0)
    assert (was_cutting, progress.is_partitioning) == (True, False)
    assert not progress.finish(1.0)


def test_pauses_after_refusals_grow_up_to_a_bound_and_begin_again(progress: Progress):
    def pause() -> float:
        progress.block(REFUSED, 100.0)
        return progress.next_at - 100.0

    assert pause() <= 1.0
    pauses = [pause() for _ in range(200)]
    assert max(pauses) <= REFUSED_CAP_S
    assert max(pauses) > REFUSED_CAP_S / 4
    progress.finish(100.0)
    assert pause() <= 1.0


def test_alternating_kinds_of_use_are_reported_after_one_wait(progress: Progress):
    ends = [IN_USE, RUNNING]
    reported = [progress.block(ends[at % 2], float(at)) for at in range(int(GRACE_S) + 1)]
    assert reported == [False] * int(GRACE_S) + [True]


def test_the_wait_for_users_begins_with_them(progress: Progress):
    assert progress.block(REFUSED, 0.0)
    assert not progress.block(IN_USE, GRACE_S + 1)
    assert progress.block(IN_USE, 2 * GRACE_S + 1)
    assert not progress.block(IN_USE, 3 * GRACE_S)


@pytest.mark.parametrize(
    ("reason", "next_at", "is_at_once"),
    [
        (BlockReason.IN_USE, WHILE_IN_USE_S, True),
        (BlockReason.USE_UNKNOWN, WHILE_IN_USE_S, True),
        (BlockReason.RUNNING, WHILE_IN_USE_S, False),
        (BlockReason.RESET_NEEDED, EVERY_S, False),
        (BlockReason.LOST, EVERY_S, False),
    ],
)
def test_an_obstacle_that_ends_by_itself_is_checked_more_often(
    progress: Progress, reason: BlockReason, next_at: float, is_at_once: bool
):
    progress.block(Blocked(reason, "so"), 0.0)
    assert progress.next_at == next_at
    assert progress.waits(0.1) != is_at_once


def test_a_lost_device_is_reported_by_its_health(progress: Progress):
    assert not progress.block(Blocked(BlockReason.LOST, "gone"), 0.0)
    assert not progress.is_reported

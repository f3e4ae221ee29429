"""The runtime: when a key is worked on, when again, and what ends it."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from reconciler.runtime.controller import (
    FIRST_BACKOFF_S,
    MAX_BACKOFF_S,
    MAX_PAUSE_S,
    Controller,
    UnretryableError,
)
from telemetry.metrics import REGISTRY
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.looptime

_numbers = itertools.count()


class Work:
    """A reconcile function that notes when it was called, and does as told."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.calls: list[tuple[str, float]] = []
        self.outcomes: list[float | Exception | None] = []
        """What the next calls return or raise; None once there are none left."""
        self.busy: list[str] = []
        self.most_busy = 0
        self.overlapped = False

    async def reconcile(self, key: str) -> float | None:
        self.calls.append((key, round(asyncio.get_running_loop().time(), 3)))
        self.overlapped = self.overlapped or key in self.busy
        self.busy.append(key)
        self.most_busy = max(self.most_busy, len(self.busy))
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.busy.remove(key)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.calls]

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.calls]

    @property
    def pauses(self) -> list[float]:
        return [later - earlier for earlier, later in itertools.pairwise(self.times)]


@asynccontextmanager
async def running(
    work: Work, *, workers: int = 1, share: float = 1.0
) -> "AsyncIterator[Controller[str]]":
    name = f"test.runtime-{next(_numbers)}"
    controller: Controller[str] = Controller(
        name, work.reconcile, LoopClock(), workers=workers, share=share
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        yield controller
        task.cancel()


def counted(controller: Controller[str], outcome: str) -> float | None:
    labels = {"controller": controller.name, "outcome": outcome}
    return REGISTRY.get_sample_value("gpu_reconciles_total", labels)


async def test_a_key_queued_often_is_worked_on_once():
    work = Work()
    async with running(work) as controller:
        for _ in range(5):
            controller.enqueue("a")
        controller.enqueue_all(["a", "b", "a"])
        await asyncio.sleep(1)
    assert work.keys == ["a", "b"]


async def test_a_delayed_key_waits_for_its_time_and_others_pass_it():
    work = Work()
    async with running(work) as controller:
        controller.enqueue("late", delay_s=3)
        controller.enqueue("soon", delay_s=1)
        controller.enqueue("now")
        await asyncio.sleep(5)
    assert work.calls == [("now", 0), ("soon", 1), ("late", 3)]


async def test_a_key_whose_timer_fired_a_moment_early_does_not_spin():
    """What the clock cannot tell from nothing is waited for all the same: time goes on."""
    work = Work()
    work.outcomes = [1e-9] * 20
    async with running(work) as controller:
        controller.enqueue("a")
        await asyncio.sleep(5)
    assert len(work.calls) == 21
    assert min(work.pauses) > 0


async def test_the_earlier_of_two_due_times_counts():
    work = Work()
    async with running(work) as controller:
        controller.enqueue("a", delay_s=3)
        controller.enqueue("a", delay_s=1)
        controller.enqueue("b", delay_s=1)
        controller.enqueue("b", delay_s=3)
        await asyncio.sleep(5)
    assert work.calls == [("a", 1), ("b", 1)]


async def test_keys_queued_before_the_start_are_not_lost():
    work = Work()
    controller: Controller[str] = Controller("test.runtime-early", work.reconcile, LoopClock())
    controller.enqueue("a")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        await asyncio.sleep(1)
        task.cancel()
    assert work.keys == ["a"]


async def test_a_key_is_never_worked_on_twice_at_a_time():
    work = Work(takes_s=2)
    async with running(work, workers=4) as controller:
        for _ in range(4):
            controller.enqueue("a")
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)
    assert not work.overlapped
    assert work.calls == [("a", 0), ("a", 2)]


async def test_a_key_that_changed_while_it_was_worked_on_is_worked_on_again_at_once():
    work = Work(takes_s=2)
    async with running(work, workers=2) as controller:
        controller.enqueue("a")
        await asyncio.sleep(1)
        controller.enqueue("a")
        await asyncio.sleep(10)
        assert controller.is_idle
    assert work.times == [0, 2]


async def test_a_change_during_a_failing_reconcile_is_not_lost():
    work = Work(takes_s=2)
    work.outcomes = [OSError("down"), None]
    async with running(work, workers=2) as controller:
        controller.enqueue("a")
        await asyncio.sleep(1)
        controller.enqueue("a")
        await asyncio.sleep(100)
        assert controller.is_idle
    assert work.times == [0, 2]


async def test_several_workers_work_on_several_keys_at_a_time():
    work = Work(takes_s=1)
    async with running(work, workers=3) as controller:
        controller.enqueue_all("abcdef")
        await asyncio.sleep(5)
    assert work.most_busy == 3
    assert work.times == [0, 0, 0, 1, 1, 1]


async def test_a_worker_rests_by_what_a_key_took_and_meanwhile_changes_are_put_together():
    work = Work(takes_s=0.1)
    async with running(work, share=0.2) as controller:
        for _ in range(100):
            controller.enqueue("a")
            await asyncio.sleep(0.01)
        await asyncio.sleep(10)
        assert controller.is_idle
    assert work.pauses == pytest.approx([0.5, 0.5], abs=0.002)


async def test_a_change_in_quiet_times_waits_for_nobody():
    work = Work(takes_s=0.1)
    async with running(work, share=0.2) as controller:
        for _ in range(3):
            controller.enqueue("a")
            await asyncio.sleep(1)
    assert work.times == [0, 1, 2]


async def test_who_found_nothing_to_write_does_not_rest():
    work = Work()
    async with running(work, share=0.01) as controller:
        controller.enqueue_all("abcd")
        await asyncio.sleep(1)
    assert work.times == [0, 0, 0, 0]


async def test_no_rest_is_longer_than_five_seconds():
    work = Work(takes_s=10)
    async with running(work, share=0.2) as controller:
        controller.enqueue_all("ab")
        await asyncio.sleep(100)
    assert work.pauses == [10 + MAX_PAUSE_S]


async def test_a_failure_costs_its_worker_a_rest_too():
    work = Work(takes_s=1)
    work.outcomes = [OSError("slow, and then refused")]
    async with running(work, share=0.2) as controller:
        controller.enqueue_all("ab")
        await asyncio.sleep(100)
    assert work.calls[:2] == [("a", 0), ("b", 5)]


async def test_a_worker_that_waits_for_a_late_key_takes_one_that_comes_sooner():
    work = Work()
    async with running(work) as controller:
        controller.enqueue("late", delay_s=60)
        await asyncio.sleep(1)
        controller.enqueue("now")
        await asyncio.sleep(1)
        assert not controller.is_idle
    assert work.calls == [("now", 1)]


async def test_a_reconcile_that_wants_to_look_again_does_so_after_its_time():
    work = Work()
    work.outcomes = [5.0, 7.0]
    async with running(work) as controller:
        controller.enqueue("a")
        await asyncio.sleep(100)
        assert counted(controller, "requeued") == 2
        assert counted(controller, "done") == 1
    assert work.times == [0, 5, 12]


async def test_failures_are_tried_again_with_growing_pauses_up_to_a_minute():
    work = Work()
    work.outcomes = [OSError("down")] * 12
    async with running(work) as controller:
        controller.enqueue("a")
        await asyncio.sleep(1000)
        assert counted(controller, "failed") == 12
        assert counted(controller, "done") == 1
    for number, pause in enumerate(work.pauses):
        ceiling = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2**number)
        # The times are rounded to a millisecond.
        assert ceiling / 2 - 0.002 <= pause <= ceiling + 0.002
    assert len(work.pauses) == 12


async def test_a_success_lets_the_pauses_start_again():
    work = Work()
    work.outcomes = [OSError("down")] * 8
    async with running(work) as controller:
        controller.enqueue("a")
        await asyncio.sleep(1000)
        work.outcomes = [OSError("down again")]
        work.calls.clear()
        controller.enqueue("a")
        await asyncio.sleep(1000)
    assert len(work.calls) == 2
    assert work.pauses[0] <= FIRST_BACKOFF_S + 0.002


async def test_one_failing_key_does_not_hold_up_another():
    work = Work()
    work.outcomes = [OSError("down")]
    async with running(work) as controller:
        controller.enqueue_all("ab")
        await asyncio.sleep(0.1)
    assert work.calls == [("a", 0), ("b", 0)]


async def test_a_change_ends_the_pause_after_a_failure():
    work = Work()
    work.outcomes = [OSError("down")] * 8
    async with running(work) as controller:
        controller.enqueue("a")
        await asyncio.sleep(20)
        work.outcomes, seen = [], len(work.calls)
        controller.enqueue("a")
        await asyncio.sleep(0.1)
        assert len(work.calls) == seen + 1
        await asyncio.sleep(1000)
    assert len(work.calls) == seen + 1


async def test_a_failure_is_logged_with_its_key_and_cause():
    work = Work()
    work.outcomes = [OSError("connection refused")]
    with capture_logs() as logs:
        async with running(work) as controller:
            controller.enqueue("a")
            await asyncio.sleep(10)
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("reconcile failed", "warning")
    assert (line["controller"], line["key"], line["failures"]) == (controller.name, "a", 1)
    assert line["error"] == "OSError: connection refused"


async def test_what_cannot_be_retried_is_dropped_until_it_changes():
    work = Work()
    work.outcomes = [UnretryableError("the spec is impossible")]
    with capture_logs() as logs:
        async with running(work) as controller:
            controller.enqueue("a")
            await asyncio.sleep(1000)
            assert work.times == [0]
            assert counted(controller, "dropped") == 1
            controller.enqueue("a")
            await asyncio.sleep(1)
    assert len(work.calls) == 2
    assert [line["error"] for line in logs] == ["the spec is impossible"]


async def test_every_outcome_is_a_zero_before_it_happens():
    async with running(Work()) as controller:
        figures = [counted(controller, item) for item in ("done", "requeued", "failed", "dropped")]
    assert figures == [0, 0, 0, 0]


async def test_the_time_of_every_reconcile_is_observed():
    work = Work(takes_s=2)
    work.outcomes = [OSError("down")]
    async with running(work) as controller:
        controller.enqueue("a")
        await asyncio.sleep(10)
        labels = {"controller": controller.name}
        total = REGISTRY.get_sample_value("gpu_reconcile_duration_seconds_sum", labels)
    assert total == pytest.approx(4)


async def test_cancellation_reaches_the_reconcile_and_is_no_failure():
    work = Work(takes_s=1000)
    async with running(work, workers=2) as controller:
        controller.enqueue_all("ab")
        await asyncio.sleep(1)
        assert work.busy == ["a", "b"]
    assert work.busy == []
    assert counted(controller, "failed") == 0


async def test_a_controller_without_work_waits_without_end():
    work = Work()
    async with running(work) as controller:
        await asyncio.sleep(10_000)
        assert controller.is_idle
    assert work.calls == []


async def test_keys_that_need_nothing_leave_others_their_turn():
    turns_at_call: list[int] = []
    turns = 0

    def take_turn() -> None:
        nonlocal turns
        turns += 1

    async def run_pass(_key: str) -> None:
        turns_at_call.append(turns)
        asyncio.get_running_loop().call_soon(take_turn)

    controller = Controller("test.turns", run_pass, LoopClock())
    controller.enqueue_all(f"key-{number}" for number in range(100))
    async with asyncio.TaskGroup() as group:
        working = group.create_task(controller.run())
        await asyncio.sleep(1)
        working.cancel()
    assert turns_at_call == list(range(100))

"""The lag of the event loop is measured: little while it is free, and each stall in full."""

import asyncio

import pytest

from http_edge.tuning import PERIOD_S, measure_loop_lag
from telemetry.metrics import REGISTRY
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

NAME = "gpu_event_loop_lag_seconds"


def counted(bound: str) -> float:
    return REGISTRY.get_sample_value(f"{NAME}_bucket", {"le": bound}) or 0.0


class Stalling(LoopClock):
    """A clock that finds, once, that much more time gone than the loop slept."""

    def __init__(self, stall_s: float) -> None:
        super().__init__()
        self.stall_s = stall_s

    def monotonic(self) -> float:
        if asyncio.get_running_loop().time() > 10 * PERIOD_S:
            self.offset_s = self.stall_s
        return super().monotonic()


@pytest.mark.parametrize("stall_s", [0.0, 0.3])
async def test_a_stall_is_measured_once_among_sleeps_that_were_in_time(stall_s: float) -> None:
    before, in_time = counted("+Inf"), counted("0.25")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(measure_loop_lag(Stalling(stall_s)))
        await asyncio.sleep(2.05)
        task.cancel()
    readings = counted("+Inf") - before
    assert 18 <= readings <= 20
    assert readings - (counted("0.25") - in_time) == (1 if stall_s else 0)

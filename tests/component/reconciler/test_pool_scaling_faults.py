"""`pool.scaling` cut at every await, and failing at every request: one node for each need, and no signal left over."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from kube.errors import KubeError
from simulator.apiserver.injection import ErrorInjection, InjectedError
from tests.component.reconciler.scaling_run import POOL, ScalingRun, a_scaling_run
from tests.support.cancellation import at_every_suspension, runs_through

pytestmark = pytest.mark.looptime

Break = Callable[[ErrorInjection, int], InjectedError]
WRITES = r"/pods/|/pods$|/status$"
LATE_S = 12.0
"""Longer than a client waits for an answer."""


def answered(status: int) -> Break:
    return lambda faults, nth: faults.fail("", WRITES, status, nth=nth)


BREAKS: dict[str, Break] = {
    **{str(status): answered(status) for status in (403, 404, 500)},
    "reset before": lambda faults, nth: faults.reset_before("", WRITES, nth=nth),
    "reset after": lambda faults, nth: faults.reset_after("", WRITES, nth=nth),
    "too late": lambda faults, nth: faults.delay("", WRITES, LATE_S, nth=nth),
}


async def plans(run: ScalingRun) -> None:
    """One batch of waiting pods is planned and asked for; a look later nothing else is."""
    await run.reconcile(POOL)
    await asyncio.sleep(2.0)
    await run.reconcile(POOL)


async def goes_on(run: ScalingRun) -> None:
    """Whatever was cut, a process asks for two nodes in all, and for none once nothing waits."""
    await asyncio.sleep(LATE_S)
    for _ in range(3):
        await run.run_pass()
    assert len(await run.ids()) == 2
    assert all(signal["status"].get("conditions") for signal in await run.signals())
    await run.delete_pods("a", "b", "c")
    await run.run_pass()
    await run.run_pass()
    assert await run.signals() == []


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("way", BREAKS)
async def test_a_failure_of_any_request_asks_for_no_node_twice(way: str, restarts: bool):
    nth, is_hit = 0, True
    while is_hit:
        nth += 1
        async with a_scaling_run() as run:
            await run.add_pods("a", "b", "c")
            await run.observe()
            rule = BREAKS[way](run.api.faults, nth)
            with contextlib.suppress(KubeError):
                await plans(run)
            is_hit = rule.seen >= nth
            run.api.faults.clear()
            if restarts:
                run.start()
            await goes_on(run)
    assert nth > 4


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_plan_cancelled_anywhere_asks_for_no_node_twice(restarts: bool):
    """Weak point 12."""

    async def attempt(number: int) -> bool:
        async with a_scaling_run() as run:
            await run.add_pods("a", "b", "c")
            await run.observe()
            is_through = await runs_through(plans(run), cancel_at=number)
            if restarts:
                run.start()
            await goes_on(run)
            return is_through

    assert await at_every_suspension(attempt) > 5

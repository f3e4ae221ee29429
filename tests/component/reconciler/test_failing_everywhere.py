"""Every request between plan and settle, failed once in every way: no unit is lost or given twice.

The requests of a bind that loses its first answer are counted, and each fails in turn: with every status
that has an error of its own, cut before or after it was carried out, and later than anybody waits.
"""

import asyncio
from collections.abc import Callable

import pytest

from scheduler.bind import bind_pod
from scheduler.codec import BindRequest
from scheduler.outcome import Outcome
from simulator.apiserver.injection import ErrorInjection, InjectedError
from tests.component.reconciler.interrupted import (
    BIND_TIMEOUT_S,
    AdmissionSetup,
    an_admission_setup,
)

pytestmark = pytest.mark.looptime

Break = Callable[[ErrorInjection, int], InjectedError]

POD = "/pods/p(/|$)"
STATUSES = (400, 401, 403, 404, 405, 406, 408, 409, 410, 415, 418, 422, 429, 500, 503, 504)


def answered(status: int) -> Break:
    return lambda faults, nth: faults.fail("", POD, status, nth=nth)


BREAKS: dict[str, Break] = {
    **{str(status): answered(status) for status in STATUSES},
    "reset before": lambda faults, nth: faults.reset_before("", POD, nth=nth),
    "reset after": lambda faults, nth: faults.reset_after("", POD, nth=nth),
    "too late": lambda faults, nth: faults.delay("", POD, BIND_TIMEOUT_S + 1, nth=nth),
}


async def a_bind_with_a_lost_answer(setup: AdmissionSetup, request: BindRequest) -> None:
    """POST without an answer, POST again, 409, GET; another pod meanwhile; then settling."""
    setup.cluster.api.faults.reset_after("POST", POD)
    first = await bind_pod(request, setup.context)
    assert (await setup.bind("q")).outcome is Outcome.BOUND
    if first.outcome is not Outcome.BOUND:
        await bind_pod(request, setup.context)
    setup.no_commitment_is_forgotten()
    await setup.reconcile_all()


async def fails_at(nth: int, way: str) -> bool:
    """Let the nth request about the pod fail; False when there are not so many."""
    async with an_admission_setup("p", "q") as setup:
        request = await setup.request("p")
        rule = BREAKS[way](setup.cluster.api.faults, nth)
        await a_bind_with_a_lost_answer(setup, request)
        is_hit = rule.seen >= nth
        setup.cluster.api.faults.clear()
        await asyncio.sleep(2 * BIND_TIMEOUT_S)
        await setup.calms_down()
        await setup.is_true()
        await setup.everybody_is_bound_in_the_end("p", "q")
    return is_hit


@pytest.mark.parametrize("way", BREAKS)
async def test_a_failure_of_any_request_loses_nothing_and_gives_nothing_twice(way: str):
    failed = 0
    while await fails_at(failed + 1, way):
        failed += 1
    assert failed >= 2

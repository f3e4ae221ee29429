"""Signal pods: one for each request whatever fails, none left over, and none of another client touched."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from api.names import SCALE_REQUEST_LABEL
from kube.errors import KubeError
from kube.resources import PODS
from manifests.constants import DEFAULT_NAMESPACE
from reconciler.scaling.backends.node_autoscaler import ForeignObjectError
from simulator.apiserver.injection import ErrorInjection, InjectedError
from tests.component.reconciler.signal_run import SignalRun, a_signal_run
from tests.support.cancellation import at_every_suspension, runs_through
from tests.support.node_requests import a_node_request, some_parameters

pytestmark = pytest.mark.looptime

REQUEST, PARAMETERS = a_node_request(), some_parameters()
NAME = f"scale-{REQUEST.id}"
ANY = "/pods(/|$)"
LATE_S = 60.0


async def test_a_signal_is_created_once_and_marked():
    async with a_signal_run() as run:
        assert await run.signals.create(REQUEST, PARAMETERS) is True
        assert await run.signals.create(REQUEST, PARAMETERS) is False
        (signal,) = await run.facts()
        assert (signal.name, signal.pool, signal.shape) == (NAME, "training", "two")
        assert (signal.devices, signal.is_marked, signal.is_intact) == (2, True, True)


async def test_a_condition_that_another_client_wrote_is_replaced():
    async with a_signal_run() as run:
        await run.signals.create(REQUEST, PARAMETERS)
        await run.admin.merge_patch(
            PODS,
            {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}},
            name=NAME,
            namespace=DEFAULT_NAMESPACE,
            subresource="status",
        )
        (signal,) = await run.facts()
        assert not signal.is_marked
        await run.signals.mark(signal)
        (signal,) = await run.facts()
        assert signal.is_marked


@pytest.mark.parametrize("label", [SCALE_REQUEST_LABEL, "gpu.deckhouse.io/component"])
async def test_a_pod_of_that_name_that_is_no_such_signal_is_left_alone(label: str):
    async with a_signal_run() as run:
        await run.signals.create(REQUEST, PARAMETERS)
        patch = {"metadata": {"labels": {label: "other"}}, "status": {"conditions": None}}
        await run.admin.merge_patch(PODS, patch, name=NAME, namespace=DEFAULT_NAMESPACE)
        before = await run.pods()
        with pytest.raises(ForeignObjectError, match=f"kubectl delete pod.*{NAME}"):
            await run.signals.create(REQUEST, PARAMETERS)
        assert await run.pods() == before


async def test_a_signal_that_a_finalizer_keeps_is_named():
    async with a_signal_run() as run:
        await run.signals.create(REQUEST, PARAMETERS)
        patch = {"metadata": {"finalizers": ["example.com/keep"]}}
        await run.admin.merge_patch(PODS, patch, name=NAME, namespace=DEFAULT_NAMESPACE)
        (signal,) = await run.facts()
        await run.signals.delete(signal)
        with pytest.raises(ForeignObjectError, match=r"example\.com/keep"):
            await run.signals.create(REQUEST, PARAMETERS)


async def test_a_deletion_does_not_reach_another_pod_of_the_name():
    async with a_signal_run() as run:
        await run.signals.create(REQUEST, PARAMETERS)
        (old,) = await run.facts()
        await run.signals.delete(old)
        await run.signals.delete(old)
        await run.signals.create(REQUEST, PARAMETERS)
        await run.signals.delete(old)
        await run.signals.mark(old)
        assert len(await run.pods()) == 1


# --- faults --------------------------------------------------------------------------------------

Break = Callable[[ErrorInjection, int], InjectedError]


def answered(status: int) -> Break:
    return lambda faults, nth: faults.fail("", ANY, status, nth=nth)


BREAKS: dict[str, Break] = {
    **{str(status): answered(status) for status in (400, 403, 404, 409, 422, 429, 500, 503)},
    "reset before": lambda faults, nth: faults.reset_before("", ANY, nth=nth),
    "reset after": lambda faults, nth: faults.reset_after("", ANY, nth=nth),
    "too late": lambda faults, nth: faults.delay("", ANY, LATE_S, nth=nth),
}


async def comes_and_goes(run: SignalRun) -> None:
    """A signal is created twice, as after a lost answer, and deleted as the watch shows it."""
    await run.signals.create(REQUEST, PARAMETERS)
    await run.signals.create(REQUEST, PARAMETERS)
    for signal in await run.facts():
        await run.signals.delete(signal)


async def ends_well(run: SignalRun) -> None:
    """Whatever was cut: another attempt makes one marked signal, and a deletion leaves none."""
    assert len(await run.pods()) <= 1
    await run.signals.create(REQUEST, PARAMETERS)
    (signal,) = await run.facts()
    assert signal.is_marked
    await run.signals.delete(signal)
    assert await run.pods() == []


@pytest.mark.parametrize("way", BREAKS)
async def test_a_failure_of_any_request_leaves_no_signal_over(way: str):
    """Weak point 12: the API server has all state, so that a process that ends anywhere leaves nothing behind."""
    nth = 0
    is_hit = True
    while is_hit:
        nth += 1
        async with a_signal_run() as run:
            rule = BREAKS[way](run.api.faults, nth)
            with contextlib.suppress(KubeError, ForeignObjectError):
                await comes_and_goes(run)
            is_hit = rule.seen >= nth
            run.api.faults.clear()
            await asyncio.sleep(2 * LATE_S)
            await ends_well(run)
    assert nth > 5


async def test_a_creation_cancelled_anywhere_leaves_no_signal_over():
    async def attempt(number: int) -> bool:
        async with a_signal_run() as run:
            is_through = await runs_through(comes_and_goes(run), cancel_at=number)
            await asyncio.sleep(2 * LATE_S)
            await ends_well(run)
            return is_through

    assert await at_every_suspension(attempt) >= 5

"""Bindings in doubt are read again until they are settled, whatever goes wrong meanwhile."""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from api.annotations import decode_devices
from api.names import DEVICES_ANNOTATION
from reconciler.pod.binding_recovery import PERIOD_S, UNSEEN_AFTER_S, BindingRecovery
from scheduler.extender import bind
from scheduler.ports import FailedReading, MissingReading, PendingReading
from telemetry.metrics import REGISTRY
from tests.support.builders import at
from tests.support.scheduling import LOST, ExtenderSetup, Time, binding_args

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.clock import Instant

pytestmark = pytest.mark.looptime


class LoopTime(Time):
    def now(self) -> "Instant":
        return at(asyncio.get_running_loop().time())


async def a_doubtful_setup(*names: str) -> ExtenderSetup:
    setup = ExtenderSetup(time=LoopTime()).pool(n1=2)
    for name in names or ("p",):
        setup.pending(name)
        setup.binder.fail_next = [LOST]
        await bind(binding_args(name), setup.context)
        assert setup.phase(name) == "doubtful"
    return setup


@asynccontextmanager
async def resolving(setup: ExtenderSetup) -> "AsyncIterator[None]":
    async with asyncio.TaskGroup() as group:
        task = group.create_task(BindingRecovery(setup.context).run())
        yield
        task.cancel()


def failures() -> float:
    labels = {"task": "binding.settling"}
    return REGISTRY.get_sample_value("gpu_task_failures_total", labels) or 0


async def test_a_binding_in_doubt_whose_pod_is_gone_is_released_within_a_period():
    setup = await a_doubtful_setup()
    setup.binder.reading = MissingReading()
    async with resolving(setup):
        await asyncio.sleep(PERIOD_S + 0.1)
    assert setup.free("n1") == 2


async def test_a_binding_in_doubt_keeps_its_units_until_the_write_cannot_land_any_more():
    setup = await a_doubtful_setup()
    setup.binder.reading = PendingReading()
    async with resolving(setup):
        await asyncio.sleep(59)
        assert setup.free("n1") == 1
        await asyncio.sleep(2)
        assert setup.free("n1") == 2


async def test_an_accepted_binding_is_not_read_while_the_watch_may_still_show_it():
    setup = ExtenderSetup(time=LoopTime()).pool(n1=1)
    setup.pending("p")
    await bind(binding_args(), setup.context)
    (reservation,) = setup.allocation_state.reader.ledger.unresolved()
    async with resolving(setup):
        await asyncio.sleep(reservation.observe_by + UNSEEN_AFTER_S - 0.1)
        assert setup.binder.reads == []
        await asyncio.sleep(2 * PERIOD_S)
        assert len(setup.binder.reads) > 0
    assert setup.phase() == "bound"


async def test_a_pod_that_cannot_be_read_is_counted_and_said_and_read_again():
    setup = await a_doubtful_setup()
    setup.binder.reading = FailedReading("connection refused")
    before = failures()
    with capture_logs() as logs:
        async with resolving(setup):
            await asyncio.sleep(3.5 * PERIOD_S)
            assert (setup.phase(), failures() - before) == ("doubtful", 3)
            assert {line["log_level"] for line in logs} == {"warning"}
            setup.binder.reading = MissingReading()
            await asyncio.sleep(PERIOD_S)
    assert setup.phase() is None


async def test_a_read_that_breaks_stops_neither_the_task_nor_the_next_pod():
    setup = await a_doubtful_setup("p", "q")
    setup.binder.reading = ValueError("a bug")
    before = failures()
    with capture_logs() as logs:
        async with resolving(setup):
            await asyncio.sleep(1.5 * PERIOD_S)
            assert failures() - before == 2
            assert {line["error"] for line in logs} == {"a bug"}
            setup.binder.reading = MissingReading()
            await asyncio.sleep(PERIOD_S)
    assert len(setup.allocation_state.ledger) == 0


async def test_a_binding_that_stays_open_fills_no_log():
    setup = await a_doubtful_setup()
    setup.binder.reading = PendingReading()
    with capture_logs() as logs:
        async with resolving(setup):
            await asyncio.sleep(30)
            assert {line["log_level"] for line in logs} == {"debug"}
            await asyncio.sleep(60)
    (line,) = [line for line in logs if line["log_level"] == "info"]
    assert (line["pod"], line["outcome"]) == ("default/p", "released")


async def test_without_doubt_nothing_is_read():
    setup = ExtenderSetup(time=LoopTime()).pool(n1=1)
    setup.pending("p")
    async with resolving(setup):
        await asyncio.sleep(600)
    assert setup.binder.reads == []


async def test_cancellation_during_a_read_leaves_the_doubt():
    setup = await a_doubtful_setup()
    setup.binder.pause = asyncio.Event()
    before = failures()
    async with resolving(setup):
        await setup.binder.sent.wait()
    assert (setup.phase(), failures()) == ("doubtful", before)


async def test_bindings_that_the_watch_does_not_show_are_read_ever_more_rarely():
    setup = ExtenderSetup(time=LoopTime()).pool(n1=4)
    for name in ("p", "q", "r"):
        setup.pending(name)
        await bind(binding_args(name), setup.context)
    (reservation, *_) = setup.allocation_state.reader.ledger.unresolved()
    begins = reservation.observe_by + UNSEEN_AFTER_S
    worker = BindingRecovery(setup.context)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(worker.run())
        await asyncio.sleep(begins + 2 * PERIOD_S)
        at_first = len(setup.binder.reads)
        await asyncio.sleep(590)
        later = len(setup.binder.reads) - at_first
        for name in ("p", "q", "r"):
            setup.bound(name, "n1", *decoded(setup, name))
        await asyncio.sleep(2 * PERIOD_S)
        task.cancel()
    # After 10 s, 20, 40, 80, 160 and 160, a period late each.
    assert (at_first, later) == (3, 6 * 3)
    assert len(setup.allocation_state.ledger) == 0
    assert worker._proven == {}


def decoded(setup: ExtenderSetup, name: str) -> list[str]:
    (binding,) = (item for item in setup.binder.bindings if item.name == name)
    devices = decode_devices(binding.annotations[DEVICES_ANNOTATION])
    assert devices is not None
    return [unit for units in devices.values() for unit in units]

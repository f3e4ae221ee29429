"""Every await between plan and settle, cancelled once: no unit is lost, none is given twice.

What must hold afterwards does not depend on where it was cancelled: the write may not have left, be on
its way, or be carried out.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from api.foreign.core import Pod
from api.names import DeviceName, NodeName, PoolName
from kube.informer import Informer
from kube.resources import PODS
from pool.facts import pod_facts
from scheduler.bind import bind_pod
from scheduler.bind_recovery import recover_binding
from scheduler.outcome import Outcome
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.component.reconciler.interrupted import AdmissionSetup, an_admission_setup
from tests.support.cancellation import Stepping, at_every_suspension, runs_through
from tests.support.loop_clock import LoopClock
from tests.support.polling import until

pytestmark = pytest.mark.looptime

LATE_S = 1.0
"""How late a write may land whose caller has gone."""
FEWEST = 2
"""Connecting and waiting for the answer suspend once each, at least."""


async def goes_on(setup: AdmissionSetup) -> None:
    """The doubt is examined and another pod is bound, while the write may be on its way; all settles."""
    setup.no_commitment_is_forgotten()
    await setup.reconcile_all()
    setup.writes.late_s = 0
    assert (await setup.bind("q")).outcome is Outcome.BOUND
    await asyncio.sleep(2 * LATE_S)
    await setup.calms_down()
    await setup.is_true()
    await setup.everybody_is_bound_in_the_end("p", "q")


@pytest.mark.parametrize("is_connected", [False, True])
@pytest.mark.parametrize("lands_late", [False, True])
async def test_a_bind_cancelled_anywhere_loses_nothing_and_gives_nothing_twice(
    lands_late: bool, is_connected: bool
):
    async def attempt(number: int) -> bool:
        async with an_admission_setup("p", "q") as setup:
            request = await setup.request("p")
            if is_connected:
                await setup.context.binder.read(request.pod)
            if lands_late:
                setup.writes.late_s = LATE_S
            is_through = await runs_through(bind_pod(request, setup.context), cancel_at=number)
            await goes_on(setup)
            return is_through

    assert await at_every_suspension(attempt) >= (1 if is_connected or lands_late else FEWEST)


@pytest.mark.parametrize("was_written", [False, True])
@pytest.mark.parametrize("lands_late", [False, True])
async def test_a_retry_cancelled_anywhere_loses_nothing_and_gives_nothing_twice(
    was_written: bool, lands_late: bool
):
    async def attempt(number: int) -> bool:
        async with an_admission_setup("p", "q") as setup:
            faults = setup.cluster.api.faults
            lose = faults.reset_after if was_written else faults.reset_before
            lose("POST", "/p/binding$")
            assert (await setup.bind("p")).outcome is Outcome.IN_DOUBT
            faults.clear()
            request = await setup.request("p")
            if lands_late:
                setup.writes.late_s = LATE_S
            is_through = await runs_through(bind_pod(request, setup.context), cancel_at=number)
            await goes_on(setup)
            return is_through

    assert await at_every_suspension(attempt) >= (1 if lands_late else FEWEST)


@pytest.mark.parametrize("was_written", [False, True])
async def test_settling_cancelled_anywhere_leaves_the_doubt_to_the_next_look(was_written: bool):
    async def attempt(number: int) -> bool:
        async with an_admission_setup("p", "q") as setup:
            faults = setup.cluster.api.faults
            lose = faults.reset_after if was_written else faults.reset_before
            lose("POST", "/p/binding$")
            assert (await setup.bind("p")).outcome is Outcome.IN_DOUBT
            (doubtful,) = setup.context.allocation_state.reader.ledger.unresolved()
            is_through = await runs_through(
                recover_binding(doubtful, setup.context), cancel_at=number
            )
            await goes_on(setup)
            return is_through

    assert await at_every_suspension(attempt) >= FEWEST


async def test_a_watch_cancelled_anywhere_is_taken_up_by_the_next_one():
    """A bind, a pod that ends and one that is deleted, while the informer of pods is cancelled."""

    async def attempt(number: int) -> bool:
        async with an_admission_setup("p", "q") as setup:
            cluster, allocation_state = setup.cluster, setup.context.allocation_state
            await setup.bind("q")

            def informer() -> Informer[Any]:
                return Informer(
                    cluster.client,
                    PODS,
                    Pod,
                    sink=cluster.pods,
                    clock=LoopClock(),
                    project=pod_facts,
                )

            async def live() -> None:
                await setup.bind("p")
                await cluster.client.delete(PODS, "q", namespace="default", grace_period_s=0)
                await cluster.add_pod("r")

            def has_all() -> bool:
                return {
                    pod.name: pod.phase.value for pod in allocation_state.reader.pods.all()
                } == {
                    "p": "bound",
                    "r": "pending",
                }

            first = Stepping(informer().run(), number)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(first)
                await live()
                await until(lambda: task.done() or has_all())
                is_through = not task.done()
                task.cancel()
            async with asyncio.TaskGroup() as group:
                task = group.create_task(informer().run())
                await until(has_all)
                task.cancel()
            await setup.calms_down()
            await setup.is_true()
            await setup.everybody_is_bound_in_the_end("p", "r")
            return is_through

    assert await at_every_suspension(attempt) >= FEWEST


RECONCILES: dict[str, Callable[[Cluster], Coroutine[Any, Any, float | None]]] = {
    "pool.status": lambda cluster: cluster.pool_status.reconcile(PoolName("whole")),
    "device.state": lambda cluster: cluster.device_status.reconcile(DeviceName("n1-0")),
    "node.pool-marks": lambda cluster: cluster.node_marks.reconcile(NodeName("n1")),
}


@pytest.mark.parametrize("controller", RECONCILES)
async def test_a_controller_cancelled_anywhere_writes_the_truth_the_next_time(controller: str):
    async def attempt(number: int) -> bool:
        async with an_admission_setup("p") as setup:
            cluster = setup.cluster
            await setup.bind("p")
            await cluster.observe()
            reconcile = RECONCILES[controller]
            is_through = await runs_through(reconcile(cluster), cancel_at=number)
            await cluster.observe()
            await reconcile(cluster)
            await cluster.observe()
            cluster.writes()
            await reconcile(cluster)
            assert cluster.writes() == []
            current = {
                "pool.status": (await cluster.status_of()).get("capacity", {}).get("used"),
                "device.state": (await cluster.device()).get("units", {}).get("allocated"),
                "node.pool-marks": len(await cluster.labels_of()),
            }
            assert current[controller] == 1
            await setup.is_true()
            return is_through

    assert await at_every_suspension(attempt) >= 1


async def test_a_cancellation_that_is_swallowed_is_found():
    async def swallows() -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return

    with pytest.raises(AssertionError):
        await runs_through(swallows(), cancel_at=1)
    async with a_cluster():
        assert await runs_through(asyncio.sleep(1), cancel_at=2)

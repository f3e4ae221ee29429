"""Waking as it runs: what is written into waiting pods, and what happens when it cannot be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from api.foreign.core import Pod
from api.names import WOKEN_ANNOTATION
from kube.resources import PODS
from reconciler.pod.requeue import (
    FIRST_PAUSE_S,
    FITS_FOR_S,
    MAX_TOUCHES,
    PERIOD_S,
    SchedulerRequeue,
)
from telemetry.metrics import REGISTRY
from tests.component.reconciler.cluster import Cluster
from tests.support.allocation_state import a_bound_pod
from tests.support.builders import at

pytestmark = pytest.mark.looptime

SOON_S = FITS_FOR_S + 2 * PERIOD_S
EVERY_TOUCH_S = FIRST_PAUSE_S * 2**MAX_TOUCHES


@asynccontextmanager
async def requeue(cluster: Cluster) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        work = SchedulerRequeue(
            cluster.client,
            cluster.allocation_state.index,
            lambda: at(loop.time()),
            reader=cluster.allocation_state.reader,
        ).run()
        task = group.create_task(work)
        yield
        task.cancel()


async def woken(cluster: Cluster, *names: str) -> list[bool]:
    pods = [await cluster.client.get(PODS, Pod, name, namespace="default") for name in names]
    return [pod.metadata.annotation(WOKEN_ANNOTATION) is not None for pod in pods]


async def wait_for_units(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.add_pod(name)
    await cluster.observe()
    cluster.api.requests.clear()


def touches(cluster: Cluster) -> list[str]:
    return [path for method, path in cluster.writes() if method == "PATCH"]


def failures() -> float:
    labels = {"task": "pod.waking"}
    return REGISTRY.get_sample_value("gpu_task_failures_total", labels) or 0


async def test_a_waiting_pod_that_fits_is_touched_with_the_time(cluster: Cluster):
    await wait_for_units(cluster, "p")
    async with requeue(cluster):
        await asyncio.sleep(FITS_FOR_S - PERIOD_S)
        assert await woken(cluster, "p") == [False]
        await asyncio.sleep(SOON_S)
    pod = await cluster.client.get(PODS, Pod, "p", namespace="default")
    stamp = pod.metadata.annotation(WOKEN_ANNOTATION)
    assert stamp is not None
    assert stamp.startswith("2026-01-01T00:00:0")


async def test_one_free_unit_wakes_one_pod(cluster: Cluster):
    await wait_for_units(cluster, "p", "q")
    cluster.pods.upsert(a_bound_pod("b", "GPU-n1-0"))
    async with requeue(cluster):
        await asyncio.sleep(SOON_S)
    assert sorted(await woken(cluster, "p", "q")) == [False, True]


async def test_nothing_is_written_while_nothing_fits(cluster: Cluster):
    """Lesson 11."""
    await wait_for_units(cluster, "p")
    cluster.pods.upsert(a_bound_pod("b", "GPU-n1-0", "GPU-n1-1"))
    async with requeue(cluster):
        await asyncio.sleep(600)
    assert touches(cluster) == []


async def test_a_pod_that_never_comes_is_left_in_peace_at_last(cluster: Cluster):
    await wait_for_units(cluster, "p")
    async with requeue(cluster):
        await asyncio.sleep(EVERY_TOUCH_S)
        assert len(touches(cluster)) == MAX_TOUCHES
        await asyncio.sleep(10 * EVERY_TOUCH_S)
    assert touches(cluster) == []


async def test_a_pod_that_was_deleted_meanwhile_is_no_failure(cluster: Cluster):
    await wait_for_units(cluster, "p", "q")
    await cluster.client.delete(PODS, "p", namespace="default")
    before = failures()
    async with requeue(cluster):
        await asyncio.sleep(SOON_S)
    assert (await woken(cluster, "q"), failures()) == ([True], before)


async def test_another_pod_with_the_same_name_is_not_touched(cluster: Cluster):
    await wait_for_units(cluster, "p")
    await cluster.client.delete(PODS, "p", namespace="default")
    await cluster.add_pod("p")
    before = failures()
    async with requeue(cluster):
        await asyncio.sleep(SOON_S)
    assert (await woken(cluster, "p"), failures()) == ([False], before)


@pytest.mark.parametrize("code", [401, 403, 409, 429, 500])
async def test_a_touch_that_did_not_reach_the_pod_is_said_and_does_not_count(
    cluster: Cluster, code: int
):
    await wait_for_units(cluster, "p")
    cluster.api.faults.fail("PATCH", "/pods/p$", code, times=3 * MAX_TOUCHES)
    before = failures()
    with capture_logs() as logs:
        async with requeue(cluster):
            await asyncio.sleep(4 * MAX_TOUCHES * FIRST_PAUSE_S)
    assert failures() - before == 3 * MAX_TOUCHES
    assert await woken(cluster, "p") == [True]
    errors: list[dict[str, Any]] = [dict(line) for line in logs if line["log_level"] == "warning"]
    assert len(errors) == 3 * MAX_TOUCHES
    assert errors[0]["pod"] == "default/p"
    assert str(code) in errors[0]["error"]


async def test_the_other_pods_are_touched_though_one_cannot_be(cluster: Cluster):
    await wait_for_units(cluster, "p", "q")
    cluster.api.faults.fail("PATCH", "/pods/p$", 500, times=100)
    async with requeue(cluster):
        await asyncio.sleep(SOON_S)
    assert await woken(cluster, "p", "q") == [False, True]


async def test_the_wait_starts_again_when_the_units_were_taken_in_between(cluster: Cluster):
    await wait_for_units(cluster, "p")
    other = a_bound_pod("b", "GPU-n1-0", "GPU-n1-1")
    async with requeue(cluster):
        await asyncio.sleep(FITS_FOR_S)
        cluster.pods.upsert(other)
        await asyncio.sleep(10 * FITS_FOR_S)
        cluster.pods.discard(other)
        await asyncio.sleep(FITS_FOR_S)
        assert await woken(cluster, "p") == [False]
        await asyncio.sleep(SOON_S)
        assert await woken(cluster, "p") == [True]


async def test_nobody_waits_nobody_is_touched(cluster: Cluster):
    async with requeue(cluster):
        await asyncio.sleep(60)
    assert cluster.writes() == []

"""Which waiting pods are nominated to the node of their reservation, in which order, and what is written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from api.foreign.core import Pod
from api.kinds.gpupool import Reserve
from api.names import NodeName, PodUid
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import PODS
from pool.allocation_state import AllocationState
from pool.model import PodFacts
from reconciler.pod.nomination import (
    AHEAD_S,
    BATCH,
    FIRST_BACKOFF_S,
    HEAD,
    MAX_BACKOFF_S,
    PERIOD_S,
    WRITERS,
    NominationWriter,
)
from telemetry.metrics import REGISTRY
from tests.component.reconciler.cluster import Cluster
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import a_pod_facts, a_pool, at
from tests.support.loop_clock import LoopClock
from tests.support.scheduling import Time

pytestmark = pytest.mark.looptime


# --- which, decided without a write ------------------------------------------------------------


def deciding(
    allocation_state: AllocationState, *, head: int, time: Time | None = None
) -> NominationWriter:
    client = KubeClient(StaticConnection("http://127.0.0.1:1", token="none"), LoopClock())
    return NominationWriter(client, allocation_state.reader, (time or Time()).now, head=head)


def names(nominating: NominationWriter) -> list[str]:
    return [item.pod.name for item in nominating.due()]


def held(allocation_state: AllocationState, count: int) -> list[PodFacts]:
    return [a_reserved_pod(allocation_state, f"p{number:03d}") for number in range(count)]


def test_nobody_is_nominated_while_the_queue_is_short():
    allocation_state = some_allocation_state(devices=some_devices(HEAD))
    held(allocation_state, HEAD)
    assert names(deciding(allocation_state, head=HEAD)) == []


def test_all_but_the_head_of_a_long_queue_are_nominated_to_the_node_of_their_reservation():
    allocation_state = some_allocation_state(
        devices=[*some_devices(2, "n1"), *some_devices(2, "n2")]
    )
    held(allocation_state, 4)
    due = deciding(allocation_state, head=1).due()
    want = [("p003", "n2"), ("p002", "n2"), ("p001", "n1")]
    assert [(item.pod.name, item.node) for item in due] == want


def test_nobody_is_nominated_in_a_pool_that_reserves_units_and_no_node():
    pool = a_pool(reserve=Reserve.UNITS)
    allocation_state = some_allocation_state(pool, devices=some_devices(4))
    held(allocation_state, 4)
    assert names(deciding(allocation_state, head=1)) == []


def test_the_head_of_the_queue_are_the_pods_of_the_highest_priority():
    allocation_state = some_allocation_state(devices=some_devices(3))
    a_reserved_pod(allocation_state, "old")
    a_reserved_pod(allocation_state, "young")
    a_reserved_pod(allocation_state, "urgent", priority=1000)
    assert names(deciding(allocation_state, head=1)) == ["young", "old"]


def test_as_many_as_left_the_queue_of_late_are_its_head_too():
    """Where pods are created as fast as they are scheduled, no nomination would come in time."""
    time, allocation_state = Time(), some_allocation_state(devices=some_devices(10))
    nominating = deciding(allocation_state, head=1, time=time)
    first, second, *_ = held(allocation_state, 5)
    assert names(nominating) == ["p004", "p003", "p002", "p001"]
    commit_to(allocation_state, first)
    commit_to(allocation_state, second)
    assert names(nominating) == ["p004"]
    time.seconds += AHEAD_S / 2
    assert names(nominating) == ["p004"]
    time.seconds += AHEAD_S / 2
    assert names(nominating) == ["p004", "p003"]


def test_a_pod_without_a_reservation_is_left_to_the_scores():
    allocation_state = some_allocation_state(devices=some_devices(1))
    held(allocation_state, 1)
    allocation_state.observe_pod(a_pod_facts("waiting"), at(0))
    assert names(deciding(allocation_state, head=0)) == ["p000"]


def test_a_pod_that_still_has_the_gate_of_autoscaling_is_not_nominated():
    """Karpenter and the planner would take a nominated pod for one that has its node."""
    allocation_state = some_allocation_state(devices=some_devices(2))
    held(allocation_state, 1)
    a_reserved_pod(allocation_state, "awaits", awaits_capacity=True)
    assert names(deciding(allocation_state, head=0)) == ["p000"]


def test_a_pod_whose_reservation_has_expired_is_left_to_the_scores():
    allocation_state = some_allocation_state(devices=some_devices(2))
    held(allocation_state, 2)
    allocation_state.expire(at(10_000))
    assert names(deciding(allocation_state, head=0)) == []


def test_a_pod_whose_binding_has_begun_is_not_nominated():
    allocation_state = some_allocation_state(devices=some_devices(2))
    _, last = held(allocation_state, 2)
    commit_to(allocation_state, last)
    assert names(deciding(allocation_state, head=0)) == ["p000"]


def test_a_pod_that_is_nominated_already_keeps_its_nomination():
    allocation_state = some_allocation_state(devices=some_devices(2))
    first, _ = held(allocation_state, 2)
    allocation_state.observe_pod(replace(first, nominated_node=NodeName("n2")), at(0))
    assert names(deciding(allocation_state, head=0)) == ["p001"]


def test_a_long_queue_is_looked_at_again_after_a_batch():
    allocation_state = some_allocation_state(devices=some_devices(BATCH + 10))
    held(allocation_state, BATCH + 10)
    assert len(deciding(allocation_state, head=0).due()) == BATCH


# --- what is written ---------------------------------------------------------------------------


def of_cluster(cluster: Cluster, *, head: int) -> NominationWriter:
    clock = LoopClock()
    return NominationWriter(
        cluster.client, cluster.allocation_state.reader, lambda: at(clock.monotonic()), head=head
    )


@asynccontextmanager
async def nominating(cluster: Cluster, *, head: int = 0) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(of_cluster(cluster, head=head).run())
        yield
        task.cancel()


async def add_held(cluster: Cluster, *added: str) -> None:
    """Pods that the API server has, with a reservation each in the allocation state."""
    for name in added:
        await cluster.add_pod(name)
        pod = await cluster.client.get(PODS, Pod, name, namespace="default")
        a_reserved_pod(cluster.allocation_state, name, uid=PodUid(pod.metadata.uid))
    cluster.api.requests.clear()


async def nominations(cluster: Cluster, *asked: str) -> list[str]:
    found = [await cluster.client.get(PODS, Pod, name, namespace="default") for name in asked]
    return [pod.status.nominated_node_name or "" for pod in found]


def count(metric: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(metric, labels) or 0


def failures() -> float:
    return count("gpu_task_failures_total", task="pod.nominating")


async def test_a_nomination_is_one_write_of_the_status(cluster: Cluster):
    await add_held(cluster, "p", "q")
    before = count("gpu_pods_nominated_total")
    async with nominating(cluster, head=1):
        await asyncio.sleep(10 * PERIOD_S)
    assert cluster.writes() == [("PATCH", "/api/v1/namespaces/default/pods/q/status")]
    assert await nominations(cluster, "p", "q") == ["", "n1"]
    assert count("gpu_pods_nominated_total") - before == 1


async def test_what_kube_scheduler_takes_back_is_not_nominated_again(cluster: Cluster):
    await add_held(cluster, "p")
    async with nominating(cluster):
        await asyncio.sleep(2 * PERIOD_S)
        taken_back = {"status": {"nominatedNodeName": None}}
        await cluster.client.merge_patch(
            PODS, taken_back, name="p", namespace="default", subresource="status"
        )
        await asyncio.sleep(10 * PERIOD_S)
    assert await nominations(cluster, "p") == [""]


async def test_another_pod_of_the_same_name_is_not_nominated(cluster: Cluster):
    await add_held(cluster, "p")
    await cluster.client.delete(PODS, "p", namespace="default")
    await cluster.add_pod("p")
    before = failures()
    async with nominating(cluster):
        await asyncio.sleep(10 * PERIOD_S)
    assert (await nominations(cluster, "p"), failures()) == ([""], before)


async def test_a_pod_that_was_deleted_meanwhile_is_no_failure(cluster: Cluster):
    await add_held(cluster, "p", "q")
    await cluster.client.delete(PODS, "p", namespace="default")
    before = failures()
    async with nominating(cluster):
        await asyncio.sleep(10 * PERIOD_S)
    assert (await nominations(cluster, "q"), failures()) == (["n1"], before)


async def test_a_pod_that_was_bound_between_the_look_and_its_turn_is_left_alone(cluster: Cluster):
    await add_held(cluster, "p")
    task = of_cluster(cluster, head=0)
    due = task.due()
    cluster.pods.upsert(a_bound_pod("p", "GPU-n1-0", uid=due[0].pod.uid))
    assert await task.nominate(due)
    assert cluster.writes() == []


@pytest.mark.parametrize("code", [401, 403, 409, 429, 500])
async def test_an_api_server_that_refuses_is_asked_less_and_less_often_and_it_is_said(
    cluster: Cluster, code: int
):
    await add_held(cluster, "p", "q")
    cluster.api.faults.fail("PATCH", "/status$", code, times=1_000)
    before = failures()
    with capture_logs() as logs:
        async with nominating(cluster):
            await asyncio.sleep(20 * MAX_BACKOFF_S)
    said = [line for line in logs if line["log_level"] == "warning"]
    # Two pods at a time, after 1, 2, 4, 8 and 16 s, and every 30 s from then on.
    assert len(said) == failures() - before
    assert 2 * 20 <= len(said) <= 2 * 30
    assert str(code) in said[0]["error"]


async def test_a_round_of_writes_ends_with_the_first_that_fails(cluster: Cluster):
    allocation_state = some_allocation_state(devices=some_devices(4 * WRITERS))
    held(allocation_state, 4 * WRITERS)
    cluster.api.faults.fail("PATCH", "/status$", 500, times=1_000)
    task = NominationWriter(cluster.client, allocation_state.reader, Time().now, head=0)
    assert not await task.nominate(task.due())
    assert len(cluster.writes()) <= WRITERS


async def test_nominations_go_on_when_the_api_server_is_back(cluster: Cluster):
    await add_held(cluster, "p")
    cluster.api.faults.fail("PATCH", "/status$", 500, times=2)
    async with nominating(cluster):
        await asyncio.sleep(4 * FIRST_BACKOFF_S)
    assert await nominations(cluster, "p") == ["n1"]

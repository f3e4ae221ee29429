"""Nodes by the replicas of a static NodePool."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.kinds.autoscaling import ScalingBackend
from api.names import AGENT_NOT_READY_TAINT
from kube.resources import NODE_POOLS, NODES
from reconciler.scaling.backends.karpenter_static import ATTEMPTS
from reconciler.settings import AutoscalingTerms
from telemetry.reasons import EventReason
from tests.component.reconciler.scaling_run import POOL, TWO, ScalingRun, a_scaling_run

pytestmark = pytest.mark.looptime

ALL = AutoscalingTerms(
    backends=frozenset(ScalingBackend), signal_image="i", batch_idle_s=1.0, batch_max_s=10.0
)


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as opened:
        opened.start(autoscaling=ALL)
        await opened.set_spec(
            autoscaling={"backend": "karpenter-static", "shapes": [TWO], "idleAfter": "1m"}
        )
        await set_replicas(opened, 0)
        yield opened


async def set_replicas(run: ScalingRun, count: int) -> None:
    await run.admin.merge_patch(NODE_POOLS, {"spec": {"replicas": count}}, name=POOL)


async def replicas(run: ScalingRun) -> int:
    pool = await run.admin.get(NODE_POOLS, dict[str, Any], POOL)
    found: int = pool["spec"]["replicas"]
    return found


async def test_each_node_that_is_needed_is_a_replica_once(run: ScalingRun):
    await run.add_pods("a", "b", "c")
    await run.look()
    assert await replicas(run) == 2
    assert await run.signals() == []
    for _ in range(3):
        await run.look()
    assert await replicas(run) == 2
    assert {one["phase"] for one in (await run.status())["requests"]} == {"Signalled"}


async def test_a_new_process_asks_for_no_further_replica(run: ScalingRun):
    """Weak point 12."""
    await run.add_pods("a", "b", "c")
    await run.look()
    run.start(autoscaling=ALL)
    await run.look()
    assert await replicas(run) == 2


async def test_a_lost_answer_adds_no_second_replica(run: ScalingRun):
    await run.add_pods("a")
    run.api.faults.reset_after("PATCH", "/nodepools/training/scale")
    with pytest.raises(Exception, match=r"reset|disconnected|broke"):
        await run.look()
    await run.look()
    assert await replicas(run) == 1


async def test_a_replica_whose_pod_is_gone_is_taken_back(run: ScalingRun):
    await run.add_pods("a")
    await run.look()
    await run.delete_pods("a")
    await run.look()
    assert await replicas(run) == 0


async def test_replicas_that_another_client_changes_meanwhile_are_not_overwritten(run: ScalingRun):
    await run.add_pods("a")
    await run.observe()
    await run.reconcile(POOL)
    await asyncio.sleep(2.0)
    await set_replicas(run, 5)
    await run.reconcile(POOL)
    assert await replicas(run) == 5


async def test_a_node_is_on_its_way_until_pods_may_come_to_it(run: ScalingRun):
    """Its devices are in the pool before its startup taint goes: no other one is asked for meanwhile."""
    await run.add_pods("a")
    await run.look()
    assert await replicas(run) == 1
    taint = {"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
    await run.add_node("n1")
    await run.admin.merge_patch(NODES, {"spec": {"taints": [taint]}}, name="n1")
    await run.launch("", name="claim-1")
    await run.look()
    assert await replicas(run) == 1
    assert len((await run.status())["requests"]) == 1


async def test_all_replicas_are_written_though_karpenter_writes_to_the_node_pool_meanwhile(
    run: ScalingRun,
):
    run.api.faults.fail("PATCH", "/nodepools/training/scale", 409, nth=2, times=2)
    await run.add_pods("a", "b", "c")
    await run.look()
    assert await replicas(run) == 2


async def test_a_refused_write_of_replicas_is_not_awaited(run: ScalingRun):
    run.api.faults.fail("PATCH", "/nodepools/training/scale", 409, times=ATTEMPTS)
    await run.add_pods("a")
    await run.look()
    assert await replicas(run) == 0
    await run.reconcile(POOL)
    assert await replicas(run) == 1


async def test_replicas_that_nothing_needs_are_taken_back(run: ScalingRun):
    await run.add_pods("a")
    await set_replicas(run, 5)
    await run.look()
    assert await replicas(run) == 1


async def test_a_node_that_is_empty_for_long_goes(run: ScalingRun):
    await run.add_node("n1")
    await set_replicas(run, 1)
    await run.look()
    run.clock.offset_s += 30
    await run.look()
    assert await replicas(run) == 1
    run.clock.offset_s += 31
    await run.look()
    assert await replicas(run) == 0


async def test_a_node_that_warm_units_need_stays(run: ScalingRun):
    await run.add_node("n1")
    await set_replicas(run, 1)
    await run.set_spec(autoscaling={"minUnits": 1})
    await run.look()
    run.clock.offset_s += 120
    await run.look()
    assert await replicas(run) == 1


async def test_another_backend_leaves_the_replicas_as_they_are(run: ScalingRun):
    await run.add_pods("a")
    await run.look()
    await run.set_spec(autoscaling=None)
    await run.look()
    assert await replicas(run) == 1


async def backend_state(run: ScalingRun) -> tuple[str, str]:
    """Return status and reason of the pool's condition BackendReady."""
    conditions = (await run.status())["conditions"]
    (found,) = [one for one in conditions if one["type"] == "BackendReady"]
    return found["status"], found["reason"]


MISCONFIGURED = EventReason.SCALING_MISCONFIGURED.value


async def test_replicas_that_karpenter_does_not_follow_are_reported(run: ScalingRun):
    await run.add_pods("a")
    for _ in range(2):
        await run.look()
    assert await backend_state(run) == ("True", "Ready")
    run.clock.wall_offset_s += 61
    await run.look()
    assert await backend_state(run) == ("False", "StaticCapacityNotServed")
    (note,) = [note for reason, note in run.notes() if reason == MISCONFIGURED]
    assert "NodePool training" in note
    assert "feature gate StaticCapacity" in note
    run.start(autoscaling=ALL)
    await run.look()
    assert await backend_state(run) == ("False", "StaticCapacityNotServed")
    assert MISCONFIGURED not in dict(run.notes())
    await run.launch("")
    await run.look()
    assert await backend_state(run) == ("True", "Ready")
    assert await replicas(run) == 1


async def test_a_node_pool_at_its_limit_is_served(run: ScalingRun):
    await run.admin.merge_patch(NODE_POOLS, {"spec": {"limits": {"nodes": 0}}}, name=POOL)
    await set_replicas(run, 1)
    await run.set_spec(autoscaling={"minUnits": 1})
    await run.look()
    run.clock.wall_offset_s += 61
    await run.look()
    assert await backend_state(run) == ("True", "Ready")

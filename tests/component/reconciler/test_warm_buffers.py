"""Warm units by CapacityBuffers: as many replicas as nodes are used, kept or missing, and demand by signals."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import AGENT_NOT_READY_TAINT, NodeName
from kube.errors import Undecodable
from kube.resources import CAPACITY_BUFFERS, GPU_POOLS, NODES, POD_TEMPLATES
from telemetry.conditions import PoolScalingCondition
from tests.component.reconciler.scaling_run import POOL, TWO, ScalingRun, a_scaling_run
from tests.component.reconciler.test_karpenter_static import ALL
from tests.support.allocation_state import a_placement_request
from tests.support.builders import a_demand

pytestmark = pytest.mark.looptime
Json = dict[str, Any]


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as opened:
        opened.start(autoscaling=ALL)
        await warm(opened, 3)
        yield opened


async def warm(run: ScalingRun, units: int) -> None:
    await run.set_spec(
        autoscaling={"backend": "capacity-buffer", "shapes": [TWO], "warmUnits": units}
    )


async def buffers(run: ScalingRun) -> list[Json]:
    return (await run.admin.list_(CAPACITY_BUFFERS, Json)).items


async def replicas(run: ScalingRun) -> list[int]:
    return [one["spec"]["replicas"] for one in await buffers(run)]


async def test_warm_units_are_replicas_of_a_buffer(run: ScalingRun):
    await run.look()
    assert await replicas(run) == [2]
    assert await run.ids() == []
    (template,) = (await run.admin.list_(POD_TEMPLATES, Json)).items
    (buffer,) = await buffers(run)
    assert buffer["spec"]["podTemplateRef"]["name"] == template["metadata"]["name"]


async def test_nodes_that_came_count_and_another_look_writes_nothing(run: ScalingRun):
    await run.look()
    (buffer,) = await buffers(run)
    label = buffer["metadata"]["name"].removeprefix("scale-")
    await run.add_node("n1", labels={"gpu.deckhouse.io/scale-request": label})
    await run.look()
    assert await replicas(run) == [2]
    await run.look()
    run.writes()
    await run.look()
    assert run.writes() == []


async def test_a_node_that_opens_while_the_plan_is_carried_out_is_not_counted_twice(
    run: ScalingRun,
):
    """The plan misses the node, which is starting, and the index has it by the time of the write."""
    await warm(run, 2)
    await run.look()
    (buffer,) = await buffers(run)
    label = buffer["metadata"]["name"].removeprefix("scale-")
    await run.add_node("n1", labels={"gpu.deckhouse.io/scale-request": label})
    taint = {"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
    await run.admin.merge_patch(NODES, {"spec": {"taints": [taint]}}, name="n1")
    await run.observe()
    run.api.faults.delay("GET", "/capacitybuffers", 1.0)
    async with asyncio.TaskGroup() as group:
        group.create_task(reconcile(run))
        await asyncio.sleep(0.5)
        await run.admin.merge_patch(NODES, {"spec": {"taints": None}}, name="n1")
        await run.observe()
    assert await replicas(run) == [1]


async def test_a_node_that_is_reserved_for_a_pod_which_is_not_seen_yet_stays(run: ScalingRun):
    await warm(run, 2)
    await run.look()
    (buffer,) = await buffers(run)
    label = buffer["metadata"]["name"].removeprefix("scale-")
    await run.add_node("n1", labels={"gpu.deckhouse.io/scale-request": label})
    await run.look()
    state, reader = run.context.allocation_state, run.context.reader
    request = a_placement_request(state, a_demand(2, pool=POOL), id_="r1")
    placed = reader.plan_on(NodeName("n1"), request.pool, request.demand)
    state.reserve(request, placed, run.clock.instant())
    await run.look()
    assert await replicas(run) == [2]


async def test_waiting_pods_get_nodes_by_signals(run: ScalingRun):
    await run.add_pods("a")
    await run.look()
    assert len(await run.ids()) == 1
    assert await replicas(run) != []


async def test_fewer_warm_units_are_fewer_replicas(run: ScalingRun):
    await run.look()
    await warm(run, 1)
    await run.look()
    assert await replicas(run) == [1]
    await warm(run, 0)
    await run.look()
    assert await replicas(run) == []
    assert (await run.admin.list_(POD_TEMPLATES, Json)).items == []


async def reconcile(run: ScalingRun) -> None:
    await run.reconcile(POOL)


async def karpenter_plans(run: ScalingRun) -> None:
    """Write the condition as Karpenter does when it plans."""
    for one in await buffers(run):
        reason = "FitsExistingCapacity" if one["spec"]["replicas"] else "BufferEmpty"
        condition = {"type": "Provisioning", "status": "True", "reason": reason}
        await run.admin.merge_patch(
            CAPACITY_BUFFERS,
            {"status": {"conditions": [condition]}},
            name=one["metadata"]["name"],
            namespace=one["metadata"]["namespace"],
            subresource="status",
        )


async def test_a_buffer_is_deleted_once_karpenter_has_seen_it_empty(run: ScalingRun):
    """Karpenter would keep the nodes of a buffer that it never saw empty."""
    await run.look()
    await karpenter_plans(run)
    await warm(run, 0)
    for _ in range(2):
        await run.look()
        assert await replicas(run) == [0]
    await karpenter_plans(run)
    await run.look()
    assert await buffers(run) == []


@pytest.mark.parametrize(
    ("spec", "signals"),
    [
        pytest.param(None, 0, id="the pool does not scale any more"),
        pytest.param({"backend": "karpenter-signal"}, 2, id="another backend is used meanwhile"),
    ],
)
async def test_a_backend_that_is_left_empties_its_buffers_first(
    run: ScalingRun, spec: Any, signals: int
):
    await run.look()
    await karpenter_plans(run)
    await run.set_spec(autoscaling=spec)
    await run.look()
    assert await replicas(run) == [0]
    assert len(await run.ids()) == signals
    await karpenter_plans(run)
    await run.look()
    assert await buffers(run) == []


@pytest.mark.parametrize("spec", [None, {"backend": "karpenter-signal", "shapes": [TWO]}])
async def test_a_pool_without_this_backend_leaves_no_buffer(run: ScalingRun, spec: Any):
    await run.look()
    await run.set_spec(autoscaling=spec if spec is None else {**spec, "warmUnits": 0})
    await run.look()
    assert await buffers(run) == []


async def test_a_pool_that_is_deleted_leaves_no_buffer(run: ScalingRun):
    await run.look()
    await run.admin.delete(GPU_POOLS, POOL)
    await run.look()
    assert await buffers(run) == []


# --- Karpenter does not look at buffers ----------------------------------------------------------

BACKEND_READY = PoolScalingCondition.BACKEND_READY


async def backend_state(run: ScalingRun) -> tuple[str, str]:
    """Return status and reason of the pool's condition."""
    conditions = (await run.status())["conditions"]
    (found,) = [one for one in conditions if one["type"] == BACKEND_READY.value]
    return found["status"], found["reason"]


UNSERVED = ("False", "CapacityBuffersNotServed")
SERVED = ("True", "Ready")


async def a_minute_passes(run: ScalingRun) -> None:
    run.clock.wall_offset_s += 61
    await run.look()


async def stays_unanswered(run: ScalingRun) -> None:
    """Let a minute pass without an answer for the buffer, and signals ask for its nodes."""
    await run.look()
    assert await backend_state(run) == SERVED
    await a_minute_passes(run)
    await run.look()


async def test_buffers_that_karpenter_does_not_serve_give_way_to_signals(run: ScalingRun):
    await stays_unanswered(run)
    assert await backend_state(run) == UNSERVED
    assert len(await run.ids()) == 2
    assert await replicas(run) == [0]
    (buffer,) = await buffers(run)
    (note,) = [note for reason, note in run.notes() if reason == "GPUScalingMisconfigured"]
    assert buffer["metadata"]["name"] in note
    assert "feature gate CapacityBuffer" in note


async def test_a_buffer_asks_for_nothing_any_more_before_signals_ask(run: ScalingRun):
    await run.look()
    await a_minute_passes(run)
    assert (await replicas(run), await run.ids()) == ([0], [])
    await run.look()
    assert (await replicas(run), len(await run.ids())) == ([0], 2)


async def test_while_karpenter_serves_no_buffer_another_look_writes_nothing(run: ScalingRun):
    await stays_unanswered(run)
    await run.look()
    run.writes()
    await run.look()
    assert run.writes() == []


async def test_a_new_process_asks_for_no_further_warm_node(run: ScalingRun):
    await stays_unanswered(run)
    run.start(autoscaling=ALL)
    for _ in range(2):
        await run.look()
        assert await replicas(run) == [0]
        assert len(await run.ids()) == 2
    assert await backend_state(run) == UNSERVED


async def test_once_karpenter_serves_buffers_no_unit_is_asked_for_twice(run: ScalingRun):
    await stays_unanswered(run)
    await karpenter_plans(run)
    for _ in range(2):
        await run.look()
        assert await backend_state(run) == SERVED
        assert await replicas(run) in ([], [0])
        assert len(await run.ids()) == 2
    await warm(run, 5)
    await run.look()
    assert await replicas(run) == [1]
    assert len(await run.ids()) == 2


async def test_the_look_that_sees_the_first_answer_asks_by_signals_alone(run: ScalingRun):
    await stays_unanswered(run)
    await warm(run, 5)
    await karpenter_plans(run)
    for _ in range(2):
        await run.look()
        assert len(await run.ids()) == 3
        assert await replicas(run) in ([], [0])


async def test_an_answer_that_comes_while_replicas_are_lowered_keeps_them(run: ScalingRun):
    """Karpenter makes nodes once it has written to the status, and would make them for the old replicas."""
    await run.look()
    run.api.faults.delay("PATCH", "/capacitybuffers", 1.0)
    run.clock.wall_offset_s += 61
    await run.observe()
    async with asyncio.TaskGroup() as group:
        group.create_task(reconcile(run))
        await asyncio.sleep(0.5)
        await karpenter_plans(run)
    await run.look()
    assert (await replicas(run), await run.ids()) == ([2], [])
    assert await backend_state(run) == SERVED


async def answer(run: ScalingRun, generation: int) -> None:
    (buffer,) = await buffers(run)
    condition = {
        "type": "ReadyForProvisioning",
        "status": "True",
        "reason": "Resolved",
        "observedGeneration": generation,
    }
    await run.admin.merge_patch(
        CAPACITY_BUFFERS,
        {"status": {"conditions": [condition]}},
        name=buffer["metadata"]["name"],
        namespace=buffer["metadata"]["namespace"],
        subresource="status",
    )


async def test_a_gate_that_is_turned_off_later_is_reported_at_the_next_change(run: ScalingRun):
    await run.look()
    await answer(run, 1)
    await a_minute_passes(run)
    await warm(run, 5)
    await run.look()
    await run.look()
    assert (await replicas(run), await backend_state(run)) == ([3], SERVED)
    await a_minute_passes(run)
    assert (await replicas(run), await backend_state(run)) == ([0], UNSERVED)
    await run.look()
    assert len(await run.ids()) == 3
    (buffer,) = await buffers(run)
    await answer(run, buffer["metadata"]["generation"])
    await run.look()
    assert await backend_state(run) == SERVED


async def test_a_node_that_comes_for_a_buffer_is_waited_for(run: ScalingRun):
    await run.look()
    await answer(run, 1)
    (buffer,) = await buffers(run)
    await run.launch(buffer["metadata"]["name"].removeprefix("scale-"))
    await warm(run, 5)
    for _ in range(2):
        await run.look()
    await a_minute_passes(run)
    await run.look()
    assert (await replicas(run), await run.ids()) == ([3], [])


async def test_a_pool_without_warm_units_needs_no_buffer_that_is_served(run: ScalingRun):
    await stays_unanswered(run)
    await warm(run, 0)
    await run.look()
    assert await backend_state(run) == SERVED
    await run.look()
    assert (await buffers(run), await run.ids()) == ([], [])


async def test_a_pool_that_is_deleted_waits_for_a_buffer_that_cannot_be_read(run: ScalingRun):
    await run.look()
    (buffer,) = await buffers(run)
    name, namespace = buffer["metadata"]["name"], buffer["metadata"]["namespace"]
    unreadable = {"status": {"replicas": "of the next version"}}
    await run.admin.merge_patch(
        CAPACITY_BUFFERS, unreadable, name=name, namespace=namespace, subresource="status"
    )
    await run.admin.delete(GPU_POOLS, POOL)
    with pytest.raises(Undecodable):
        await run.look()
    assert await buffers(run)

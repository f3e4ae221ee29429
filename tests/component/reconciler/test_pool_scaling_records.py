"""What a pool's status keeps of its autoscaling: failures, pauses, device-hours and money, over the end of a process."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import SCALE_REQUEST_LABEL
from kube.resources import GPU_DEVICES, GPU_POOLS, NODE_CLAIMS, NODES
from telemetry.metrics import REGISTRY
from tests.component.reconciler.scaling_run import POOL, ScalingRun, a_scaling_run
from tests.support.cache_demands import LLAMA, a_cache_volume, a_resolved_cache
from tests.support.hand_made import a_device

pytestmark = pytest.mark.looptime

SHAPES = [
    {"name": "two", "devices": 2, "pricePerHour": "4"},
    {"name": "other", "devices": 2, "pricePerHour": "6"},
]


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as found:
        await found.set_spec(autoscaling={"shapes": SHAPES})
        yield found


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"pool": POOL, **labels}) or 0


async def shapes_in_status(run: ScalingRun) -> list[tuple[str, int]]:
    shapes = (await run.status()).get("shapes", [])
    return [(shape["name"], shape.get("failures", 0)) for shape in shapes]


async def a_launch_fails(run: ScalingRun) -> str:
    (id_,) = await run.ids()
    await run.launch(id_, name=f"claim-{id_}")
    await run.run_pass()
    await run.admin.delete(NODE_CLAIMS, f"claim-{id_}")
    return id_


async def test_weak_point_15_the_next_shape_is_taken_at_once_and_the_failed_one_left_alone(
    run: ScalingRun,
):
    failures = metric("gpu_scale_failures_total", reason="InsufficientCapacityError")
    await run.add_pods("p")
    await run.run_pass()
    failed = await a_launch_fails(run)
    await run.run_pass()
    (id_,) = await run.ids()
    assert id_ != failed
    requests = {request["id"]: request for request in (await run.status())["requests"]}
    assert (requests[id_]["shape"], requests[id_]["phase"]) == ("other", "Planned")
    assert await shapes_in_status(run) == [("two", 1)]
    await run.run_pass()
    assert failed not in {request["id"] for request in (await run.status())["requests"]}
    assert await shapes_in_status(run) == [("two", 1)]
    grown = metric("gpu_scale_failures_total", reason="InsufficientCapacityError") - failures
    assert grown == 1


async def test_weak_point_12_a_new_process_keeps_the_pause_of_a_shape(run: ScalingRun):
    await run.add_pods("p")
    await run.run_pass()
    await a_launch_fails(run)
    await run.run_pass()
    run.start()
    await run.run_pass()
    assert await shapes_in_status(run) == [("two", 1)]
    assert metric("gpu_smart_pods_active") == 1


async def test_devices_of_a_shape_that_a_kernel_cache_does_not_fit_are_not_bought_again(
    run: ScalingRun,
):
    await run.add_node("n1", devices=1)
    capability = {"status": {"computeCapability": "8.6"}}
    await run.admin.merge_patch(GPU_DEVICES, capability, name="n1-0", subresource="status")
    await run.run_pass()
    (shape,) = (await run.status())["shapes"]
    assert (shape["name"], shape["computeCapabilities"]) == ("two", ["8.6"])
    await run.admin.delete(GPU_DEVICES, "n1-0")
    await run.admin.delete(NODES, "n1")
    run.start()
    run.stores.kernel_caches.set_cache(LLAMA, a_resolved_cache(90))
    await run.add_pods("p", volumes=[a_cache_volume()])
    await run.run_pass()
    (request,) = (await run.status())["requests"]
    assert request["shape"] == "other"


async def test_a_pod_whose_shapes_all_pause_says_so_on_pool_and_pod(run: ScalingRun):
    await run.add_pods("p")
    await run.run_pass()
    for _ in SHAPES:
        await a_launch_fails(run)
        await run.run_pass()
    status = await run.status()
    conditions = {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in status["conditions"]
    }
    assert conditions["ShapesAvailable"] == ("False", "BackingOff")
    assert (status["phase"], await run.ids()) == ("Blocked", [])
    assert metric("gpu_scale_waiting_pods", reason="BackingOff") == 1


async def test_a_signal_that_is_answered_within_a_minute_or_not(run: ScalingRun):
    await run.add_pods("p")
    await run.run_pass()
    await asyncio.sleep(61)
    await run.run_pass()
    await run.run_pass()
    shapes = (await run.status())["shapes"]
    assert [(shape["name"], shape["reason"]) for shape in shapes] == [("two", "NotAnswered")]
    requests = (await run.status())["requests"]
    assert [request["shape"] for request in requests if request["phase"] == "Signalled"] == [
        "other"
    ]


async def test_a_node_whose_driver_is_compiled_says_so_and_has_the_pools_time_for_it(
    run: ScalingRun,
):
    await run.set_spec(autoscaling={"driverMinutes": 20})
    await run.add_pods("p")
    await run.run_pass()
    (id_,) = await run.ids()
    await run.launch(id_)
    await run.add_node("n1", devices=0, labels={SCALE_REQUEST_LABEL: id_})
    obstacle = "the validator has not completed driver-validation"
    condition = {"type": "ReadyForPooling", "status": "False", "message": obstacle}
    inventory = {"metadata": {"name": "n1"}, "status": {"conditions": [condition]}}
    run.stores.inventory_sink.upsert(msgspec.convert(inventory, GPUNodeInventory))
    await run.run_pass()
    (request,) = (await run.status())["requests"]
    assert (request["phase"], request["node"]) == ("Registered", "n1")
    assert request["message"].endswith(obstacle)
    assert metric("gpu_scale_devices_within_seconds") == (15 + 20) * 60


async def add_node(run: ScalingRun) -> None:
    """Add a node of the pool with two devices, that was handed over."""
    head = {"apiVersion": NODES.api_version, "kind": NODES.kind}
    metadata = {"name": "n1", "labels": {"karpenter.sh/nodepool": POOL}}
    await run.admin.create(NODES, {**head, "metadata": metadata})
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await run.admin.merge_patch(NODES, {"status": ready}, name="n1", subresource="status")
    for number in range(2):
        body = a_device("n1", number, POOL)
        await run.admin.create(GPU_DEVICES, body)
        name = body["metadata"]["name"]
        patch = {"status": body["status"]}
        await run.admin.merge_patch(GPU_DEVICES, patch, name=name, subresource="status")


async def figures(run: ScalingRun) -> tuple[str, dict[str, tuple[int, str]]]:
    """Return what was spent, and devices and hours by state, of those that have any."""
    status = await run.status()
    usage = {
        item["state"]: (item.get("devices", 0), item["deviceHours"]) for item in status["usage"]
    }
    return status.get("spent", ""), {state: item for state, item in usage.items() if item[0]}


async def test_a_node_is_counted_by_the_hour_and_a_new_process_goes_on(run: ScalingRun):
    """Half an hour and half an hour of a node that costs 4 an hour."""
    await add_node(run)
    await run.run_pass()
    for _ in range(2):
        await asyncio.sleep(1800)
        await run.run_pass()
        run.start()
    spent, used = await figures(run)
    assert 3.9 <= float(spent) <= 4.1
    ((state, (devices, hours)),) = used.items()
    assert (state, devices) == ("idle", 2)
    assert 1.95 <= float(hours) <= 2.05
    assert metric("gpu_scale_node_cost_per_hour", state="idle") == 4


async def test_what_a_budget_has_left_is_shown(run: ScalingRun):
    await run.set_spec(autoscaling={"shapes": SHAPES, "budget": {"perHour": "10", "perDay": "50"}})
    await add_node(run)
    await run.run_pass()
    assert metric("gpu_scale_budget_remaining", period="hour") == 6
    assert 49.9 < metric("gpu_scale_budget_remaining", period="day") <= 50
    await run.set_spec(autoscaling={"shapes": SHAPES, "budget": None})
    await run.run_pass()
    assert metric("gpu_scale_budget_remaining", period="hour") == 0


async def test_a_pool_at_rest_is_written_every_half_hour_and_an_empty_one_never(run: ScalingRun):
    await run.run_pass()
    run.writes()
    for _ in range(40):
        await asyncio.sleep(60)
        await run.run_pass()
    assert run.writes() == []
    await add_node(run)
    await run.run_pass()
    run.writes()
    for _ in range(180):
        await asyncio.sleep(60)
        await run.run_pass()
    assert 4 <= len([write for write in run.writes() if write.endswith("/status")]) <= 7


async def test_nodes_of_the_last_hour_outlast_their_claims_and_the_leader(run: ScalingRun):
    await run.set_spec(autoscaling={"shapes": SHAPES, "maxNodesPerHour": 1})
    await run.add_pods("p")
    await run.run_pass()
    await a_launch_fails(run)
    await run.run_pass()
    run.start()
    run.notes()
    await run.run_pass()
    notes = [note for reason, note in run.notes() if reason == "GPUNodeRequestBlocked"]
    assert len(notes) == 1
    assert "MaxNodesPerHour" in notes[0]
    assert len((await run.status())["nodesOfLastHour"]) == 1
    assert await run.ids() == []


@pytest.mark.parametrize("is_another_leader", [False, True])
async def test_a_pool_that_is_made_again_goes_on_with_its_money_of_today_under_the_same_leader(
    run: ScalingRun, is_another_leader: bool
):
    """Without its status, as a backup tool restores it (docs/restore.md)."""
    await run.add_node("n1")
    await run.run_pass()
    for _ in range(4):
        await asyncio.sleep(900)
        await run.run_pass()
    spent = float((await run.status())["spent"])
    assert spent > 3.9
    await run.admin.delete(GPU_POOLS, POOL)
    await run.run_pass()
    if is_another_leader:
        run.start()
    await run.add_pool(POOL, *SHAPES)
    await run.run_pass()
    restored = float((await run.status()).get("spent", 0))
    assert restored < 0.1 if is_another_leader else restored >= spent

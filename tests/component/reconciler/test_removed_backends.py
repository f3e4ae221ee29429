"""Pools of backends that were removed: signals serve them, and what they bought by other objects is given back."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.driver_upgrade import UPGRADE_STATE_LABEL
from api.kinds.autoscaling import REMOVED_BACKENDS, ScalingBackend
from api.names import SCALING_POOL_LABEL, NodeName
from kube.resources import CAPACITY_BUFFERS, GPU_POOLS, NODE_POOLS, NODES
from manifests.constants import DEFAULT_NAMESPACE
from reconciler.scaling.removed_backends import NO_POOL, RECHECK_AFTER_S, SPEC
from tests.component.reconciler.scaling_run import ALL, POOL, TWO, ScalingRun, a_scaling_run
from tests.support.allocation_state import a_placement_request
from tests.support.builders import a_demand
from tests.support.controllers import a_context, connected

pytestmark = pytest.mark.looptime
REMOVED = sorted(REMOVED_BACKENDS, key=str)


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as opened:
        opened.start(scaling_backends=ALL)
        yield opened


async def set_backend(run: ScalingRun, backend: ScalingBackend, **more: Any) -> None:
    await run.set_spec(autoscaling={"backend": backend.value, "shapes": [TWO], **more})


async def clean_up(run: ScalingRun, pool: str) -> float | None:
    await run.observe()
    again_s: float | None = await SPEC.build(run.context)(pool)
    return again_s


# --- served by signals ---------------------------------------------------------------------------


@pytest.mark.parametrize("backend", REMOVED)
async def test_signals_serve_the_pool_and_a_condition_says_what_to_set(
    run: ScalingRun, backend: ScalingBackend
):
    await set_backend(run, backend)
    await run.add_pods("a")
    await run.run_pass()
    status = await run.status()
    assert (len(await run.ids()), status["backend"]) == (1, "karpenter-signal")
    ready = status["conditions"][0]
    assert (ready["type"], ready["status"], ready["reason"]) == (
        "BackendReady",
        "False",
        "BackendRemoved",
    )
    assert f"backend {backend.value} was removed" in ready["message"]
    assert "set spec.autoscaling.backend to karpenter-signal" in ready["message"]


@pytest.mark.parametrize("backend", REMOVED)
async def test_the_status_of_a_former_version_is_left_behind(
    run: ScalingRun, backend: ScalingBackend
):
    """It names the removed backend as the one in use, and requests that only that one knows."""
    await set_backend(run, backend)
    request = {"id": "training-replica-0", "shape": "two", "phase": "Signalled", "units": 2}
    status = {"autoscaling": {"backend": backend.value, "requests": [request]}}
    await run.admin.merge_patch(GPU_POOLS, {"status": status}, name=POOL, subresource="status")
    await run.add_pods("a")
    await run.run_pass()
    assert (await run.status())["backend"] == "karpenter-signal"
    assert len(await run.ids()) == 1
    await run.set_spec(autoscaling=None)
    await run.run_pass()
    assert await run.ids() == []


async def test_a_static_node_pool_is_a_fault_that_names_the_cure(run: ScalingRun):
    await set_backend(run, ScalingBackend.KARPENTER_STATIC)
    await set_replicas(run, 1)
    await run.run_pass()
    conditions = (await run.status())["conditions"]
    (valid,) = [found for found in conditions if found["type"] == "NodePoolValid"]
    assert valid["status"] == "False"
    assert "create it without replicas" in valid["message"]


# --- replicas of static NodePools ----------------------------------------------------------------


async def set_replicas(run: ScalingRun, count: int) -> None:
    await run.admin.merge_patch(NODE_POOLS, {"spec": {"replicas": count}}, name=POOL)


async def replicas(run: ScalingRun) -> int:
    pool = await run.admin.get(NODE_POOLS, dict[str, Any], POOL)
    found: int = pool["spec"]["replicas"]
    return found


async def two_static_nodes(run: ScalingRun, **more: Any) -> None:
    """Three replicas, of which two have a node, and one of these a reservation."""
    await set_backend(run, ScalingBackend.KARPENTER_STATIC, **more)
    await set_replicas(run, 3)
    await run.add_node("n1")
    await run.add_node("n2")
    await run.observe()
    state = run.context.allocation_state
    request = a_placement_request(state, a_demand(1, pool=POOL), id_="r1")
    placed = run.context.reader.plan_on(NodeName("n1"), request.pool, request.demand)
    state.reserve(request, placed, run.clock.instant())


async def test_replicas_follow_the_nodes_in_use_down(run: ScalingRun):
    await two_static_nodes(run)
    assert await clean_up(run, POOL) == RECHECK_AFTER_S
    assert await replicas(run) == 1
    run.start(scaling_backends=ALL)
    await clean_up(run, POOL)
    assert await replicas(run) == 0
    run.writes()
    await clean_up(run, POOL)
    assert run.writes() == []


async def test_a_node_that_min_units_need_stays(run: ScalingRun):
    await two_static_nodes(run, minUnits=4)
    await clean_up(run, POOL)
    assert await replicas(run) == 2


async def test_a_node_that_gets_a_new_driver_is_not_idle(run: ScalingRun):
    await two_static_nodes(run)
    patch = {"metadata": {"labels": {UPGRADE_STATE_LABEL: "pod-restart-required"}}}
    await run.admin.merge_patch(NODES, patch, name="n2")
    await clean_up(run, POOL)
    assert await replicas(run) == 2


async def test_replicas_that_were_changed_meanwhile_are_not_overwritten(run: ScalingRun):
    await two_static_nodes(run)
    await run.observe()
    await set_replicas(run, 0)
    await SPEC.build(run.context)(POOL)
    assert await replicas(run) == 0


async def test_static_node_pools_of_other_pools_are_left_alone(run: ScalingRun):
    await set_backend(run, ScalingBackend.KARPENTER_SIGNAL)
    await set_replicas(run, 3)
    assert await clean_up(run, POOL) is None
    assert await replicas(run) == 3


# --- CapacityBuffers -----------------------------------------------------------------------------


async def add_buffer(run: ScalingRun, name: str, **labels: str) -> None:
    body = {
        "apiVersion": CAPACITY_BUFFERS.api_version,
        "kind": CAPACITY_BUFFERS.kind,
        "metadata": {"name": name, "namespace": DEFAULT_NAMESPACE, "labels": labels},
        "spec": {"replicas": 2},
    }
    await run.admin.create(CAPACITY_BUFFERS, body)


async def test_buffers_of_ours_get_no_replicas_though_their_pool_is_gone(run: ScalingRun):
    await add_buffer(run, "scale-a", **{SCALING_POOL_LABEL: POOL})
    await add_buffer(run, "scale-b", **{SCALING_POOL_LABEL: "gone"})
    await add_buffer(run, "theirs", team="ml")
    assert await clean_up(run, NO_POOL) is None
    found = (await run.admin.list_(CAPACITY_BUFFERS, dict[str, Any])).items
    assert {buffer["metadata"]["name"]: buffer["spec"]["replicas"] for buffer in found} == {
        "scale-a": 0,
        "scale-b": 0,
        "theirs": 2,
    }


async def test_a_cluster_without_buffers_needs_nothing():
    async with a_scaling_run(has_karpenter=False) as run:
        run.start(scaling_backends=ALL)
        assert await clean_up(run, NO_POOL) is None
        assert run.writes() == []


async def test_without_the_setting_nothing_is_asked_of_the_api_server(run: ScalingRun):
    run.start()
    assert not SPEC.is_enabled(run.context.settings)
    run.start(scaling_backends=frozenset({ScalingBackend.KARPENTER_STATIC}))
    assert SPEC.is_enabled(run.context.settings)
    run.api.requests.clear()
    await SPEC.build(run.context)(NO_POOL)
    assert list(run.api.requests) == []


async def test_buffers_are_looked_at_once_a_term():
    context = a_context(scaling_backends=ALL)
    async with context.ending:
        assert connected(SPEC, context).taken() == [NO_POOL]

"""`pool.scaling`: which nodes are asked for and withdrawn, and what pods and the pool's status say of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.driver_upgrade import DRIVER_UPGRADE, UNITS_WITHHELD_ANNOTATION, UPGRADE_STATE_LABEL
from api.names import PoolName
from kube.resources import DAEMON_SETS, GPU_POOLS, NODES
from operands.upgrade.actions import SetState
from reconciler.scaling.probe import PROBE_S
from tests.component.reconciler.scaling_run import POOL, TWO, ScalingRun, a_scaling_run
from tests.support.driver_upgrades import OUTDATED, a_driver, a_node, step

pytestmark = pytest.mark.looptime


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as opened:
        yield opened


async def test_three_pods_of_a_unit_get_two_nodes_of_two_devices(run: ScalingRun):
    """Weak point 9: pods that fail together are one round."""
    await run.add_pods("a", "b", "c")
    await run.run_pass()
    assert len(await run.ids()) == 2
    status = await run.status()
    assert (status["phase"], status["backend"]) == ("Scaling", "karpenter-signal")
    await run.run_pass()
    assert {request["phase"] for request in (await run.status())["requests"]} == {"Signalled"}


async def test_another_look_asks_for_nothing_more(run: ScalingRun):
    """Weak point 10: nodes on their way count."""
    await run.add_pods("a", "b", "c")
    await run.run_pass()
    asked = await run.ids()
    await run.run_pass()
    run.writes()
    await run.run_pass()
    assert await run.ids() == asked
    assert run.writes() == []


async def test_a_new_process_goes_on_from_what_the_api_server_has(run: ScalingRun):
    """Weak point 12."""
    await run.add_pods("a", "b", "c")
    await run.run_pass()
    asked = await run.ids()
    run.start()
    await run.run_pass()
    assert await run.ids() == asked


async def test_a_pod_is_told_once_what_was_asked_for(run: ScalingRun):
    await run.add_pods("a", "b")
    await run.run_pass()
    notes = run.notes()
    assert [reason for reason, _ in notes] == ["GPUNodeRequested"] * 2
    assert (await run.ids())[0] in notes[0][1]
    await run.run_pass()
    assert run.notes() == []


async def test_a_pod_that_no_node_comes_for_is_told_why(run: ScalingRun):
    await run.add_pods("a", units=3)
    await run.run_pass()
    ((reason, note),) = run.notes()
    assert reason == "GPUNodeRequestBlocked"
    assert "TooLargeForShapes" in note
    assert (await run.status())["phase"] == "Blocked"
    assert await run.signals() == []


async def test_pods_wait_for_the_units_of_a_node_whose_driver_is_upgraded_until_that_fails(
    run: ScalingRun,
):
    await run.add_node("n1", labels={UPGRADE_STATE_LABEL: "upgrade-required"})
    node = a_node("upgrade-required", record={}, driver_pods=(a_driver(OUTDATED),))
    await run.add_pods("a")
    for state, is_awaited in (("cordon-required", True), ("upgrade-failed", False)):
        answer = step(node, now=run.clock.utc_now())
        (change,) = (action for action in answer.actions if isinstance(action, SetState))
        assert change.state.value == "cordon-required"
        annotations = {**change.annotations, UNITS_WITHHELD_ANNOTATION: DRIVER_UPGRADE}
        meta = {"labels": {UPGRADE_STATE_LABEL: state}, "annotations": annotations}
        await run.admin.merge_patch(NODES, {"metadata": meta}, name="n1")
        await run.run_pass()
        assert (await run.signals() == []) is is_awaited
        ((reason, note),) = run.notes()
        assert (reason == "GPUNodeRequestBlocked") is is_awaited
        assert ("DriverUpgrade" in note and "node n1" in note) is is_awaited


async def test_a_signal_that_nothing_needs_any_more_is_withdrawn(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    await run.delete_pods("a")
    run.notes()
    await run.run_pass()
    assert await run.signals() == []
    assert [reason for reason, _ in run.notes()] == ["GPUNodeRequestCancelled"]


async def test_a_node_that_is_launched_is_not_withdrawn(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    (id_,) = await run.ids()
    await run.launch(id_)
    await run.delete_pods("a")
    await run.run_pass()
    assert await run.ids() == [id_]
    (request,) = (await run.status())["requests"]
    assert (request["phase"], request["nodeClaim"]) == ("Launched", "claim-1")


async def test_a_signal_without_its_condition_gets_it_again(run: ScalingRun):
    await run.add_pods("a")
    run.api.faults.fail("PATCH", "/pods/.*/status", 500)
    with pytest.raises(Exception, match="500"):
        await run.run_pass()
    await run.run_pass()
    (signal,) = await run.signals()
    assert signal["status"]["conditions"][0]["reason"] == "Unschedulable"


async def test_pods_of_a_resource_are_those_of_the_pool_that_serves_it():
    async with a_scaling_run() as run:
        await run.add_pods("a")
        await asyncio.sleep(2.0)
        pool = await run.admin.get(GPU_POOLS, dict[str, Any], POOL)
        spec = {**pool["spec"], "resource": {"name": "gpu.deckhouse.io/training"}}
        head = {key: pool[key] for key in ("apiVersion", "kind")}
        await run.admin.create(GPU_POOLS, {**head, "metadata": {"name": "younger"}, "spec": spec})
        await run.run_pass(PoolName("younger"))
        assert await run.signals() == []
        await run.run_pass()
        assert len(await run.ids()) == 1


# --- pools that stop -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"autoscaling": None}, id="no autoscaling"),
        pytest.param({"autoscaling": {"backend": "none"}}, id="backend none"),
    ],
)
async def test_a_pool_that_stops_scaling_leaves_no_signal(run: ScalingRun, spec: dict[str, object]):
    await run.add_pods("a")
    await run.run_pass()
    await run.set_spec(**spec)
    await run.run_pass()
    assert await run.signals() == []


async def test_the_status_of_a_pool_without_autoscaling_goes(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    await run.set_spec(autoscaling=None)
    await run.run_pass()
    assert await run.status() == {}
    assert run.view.pools == {}
    run.writes()
    await run.run_pass()
    assert run.writes() == []


async def test_a_deleted_pool_leaves_no_signal(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    await run.admin.delete(GPU_POOLS, POOL)
    await run.run_pass()
    assert await run.signals() == []


async def test_a_pool_in_maintenance_leaves_no_signal(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    allocation = {"mode": "TimeSlice", "slicesPerDevice": 2}
    patch = {"status": {"allocation": allocation}}
    await run.admin.merge_patch(GPU_POOLS, patch, name=POOL, subresource="status")
    await run.run_pass()
    assert await run.signals() == []
    await run.run_pass()
    assert (await run.status())["phase"] == "Blocked"


async def test_signals_of_no_pool_are_swept(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    await run.admin.delete(GPU_POOLS, POOL)
    run.start()
    await run.observe()
    assert list(run.stores.scale_signals.groups()) == [POOL]
    await run.run_pass()
    assert await run.signals() == []


async def test_a_pool_that_does_not_scale_costs_no_request():
    async with a_scaling_run() as run:
        await run.set_spec(autoscaling=None)
        await run.observe()
        run.api.requests.clear()
        for _ in range(3):
            assert await run.reconcile(POOL) is None
        assert list(run.api.requests) == []


# --- what the cluster lacks ----------------------------------------------------------------------


async def test_without_karpenter_nothing_is_asked_for_and_the_pool_says_so():
    async with a_scaling_run(has_karpenter=False) as run:
        await run.add_pods("a")
        await run.run_pass()
        status = await run.status()
        assert status["backend"] == "none"
        assert status["conditions"][0]["reason"] == "KarpenterMissing"
        notes = dict(run.notes())
        assert "install Karpenter" in notes["GPUScalingMisconfigured"]
        assert "install Karpenter" in notes["GPUNodeRequestBlocked"]
        await run.run_pass()
        assert run.notes() == []


async def test_a_backend_that_settings_do_not_allow_is_a_condition(run: ScalingRun):
    await run.set_spec(autoscaling={"backend": "balloon", "shapes": [TWO]})
    await run.add_pods("a")
    await run.run_pass()
    condition = (await run.status())["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "BackendNotEnabled")
    assert len(await run.ids()) == 1


async def test_node_software_that_has_no_pod_on_new_nodes_is_a_condition(run: ScalingRun):
    """A node without its driver would wait for devices until it is given up."""
    selector = {"nvidia.com/gpu.deploy.driver": "true"}
    template = {"spec": {"nodeSelector": selector, "containers": [{"name": "c", "image": "i"}]}}
    template |= {"metadata": {"labels": {"app": "nvidia-driver-daemonset"}}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-driver-daemonset", "namespace": "default"},
        "spec": {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template},
    }
    await run.admin.create(DAEMON_SETS, body)
    await run.add_pods("a")
    await run.run_pass()
    assert len(await run.ids()) == 1
    reason, message = await node_pool_valid(run)
    assert reason == "NodeSoftwareKeptAway"
    assert "default/nvidia-driver-daemonset" in message
    assert "add {key: gpu.deckhouse.io/agent-not-ready, operator: Exists}" in message

    tolerations = [{"operator": "Exists"}]
    patch = {"spec": {"template": {"spec": {"tolerations": tolerations}}}}
    await run.admin.merge_patch(
        DAEMON_SETS, patch, name="nvidia-driver-daemonset", namespace="default"
    )
    await asyncio.sleep(PROBE_S)
    await run.run_pass()
    assert (await node_pool_valid(run))[0] == "Valid"


async def node_pool_valid(run: ScalingRun) -> tuple[str, str]:
    conditions = (await run.status())["conditions"]
    (found,) = [item for item in conditions if item["type"] == "NodePoolValid"]
    return found["reason"], found["message"]

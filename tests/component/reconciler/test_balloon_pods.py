"""Nodes by balloons: bound to the node that came, and gone once its devices are in the pool."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import AGENT_NOT_READY_TAINT
from kube.resources import NODES, PODS, Resource
from manifests.constants import DEFAULT_NAMESPACE
from manifests.scaling.balloon_pod import build_balloon
from manifests.scaling.priority_class import build_balloon_priority_class
from tests.component.reconciler.scaling_run import ALL, TWO, ScalingRun, a_scaling_run
from tests.support import node_requests
from tests.support.kubernetes_schemas import check_object

pytestmark = pytest.mark.looptime

PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run(has_karpenter=False) as opened:
        await opened.admin.create(PRIORITY_CLASSES, build_balloon_priority_class())
        opened.start(scaling_backends=ALL)
        await opened.set_spec(autoscaling={"backend": "balloon", "shapes": [TWO]})
        yield opened


async def bind(run: ScalingRun, node: str) -> None:
    """What kube-scheduler does."""
    (pod,) = await run.signals()
    body = {
        "metadata": {"name": pod["metadata"]["name"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await run.admin.create(
        PODS,
        body,
        namespace=DEFAULT_NAMESPACE,
        name=pod["metadata"]["name"],
        subresource="binding",
    )


async def phases(run: ScalingRun) -> list[str]:
    return [request["phase"] for request in (await run.status())["requests"]]


def test_a_balloon_is_a_valid_pod_that_keeps_away_from_the_pools_nodes():
    """Weak point 1: a node whose devices the autoscaler takes for free gets no balloon."""
    shape = node_requests.a_shape(requirements=(node_requests.a_requirement(),))
    pod: dict[str, Any] = build_balloon(
        node_requests.a_node_request(shape=shape),
        node_requests.some_parameters(
            shape, taints=(node_requests.TAINT,), signal_resource="nvidia.com/gpu"
        ),
        namespace="gpu",
        image="registry.example.com/gpu-control-plane:1.0",
    )
    check_object(pod, "1.30")
    terms = pod["spec"]["affinity"]["podAntiAffinity"]
    labels = [
        item["labelSelector"]["matchLabels"]
        for item in terms["requiredDuringSchedulingIgnoredDuringExecution"]
    ]
    assert {"gpu.deckhouse.io/pool": "training"} in labels


async def test_each_node_is_a_balloon_once(run: ScalingRun):
    await run.add_pods("a", "b", "c")
    await run.run_pass()
    asked = await run.ids()
    assert len(asked) == 2
    run.start(scaling_backends=ALL)
    await run.run_pass()
    assert await run.ids() == asked
    assert await phases(run) == ["Signalled", "Signalled"]


async def test_a_balloon_stays_while_its_node_has_no_device(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    await run.add_node("n1", devices=0)
    await bind(run, "n1")
    await run.run_pass()
    assert await phases(run) == ["Registered"]
    assert len(await run.signals()) == 1


async def test_a_balloon_on_a_node_with_devices_is_removed(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    await run.add_node("n1")
    await bind(run, "n1")
    await run.run_pass()
    assert await run.signals() == []


async def test_a_balloon_on_a_node_that_is_starting_stays_and_no_second_node_is_requested(
    run: ScalingRun,
):
    """Its units count for nobody yet: without the balloon the pod would seem to need another node."""
    await run.add_pods("a")
    await run.run_pass()
    asked = await run.ids()
    await run.add_node("n1")
    startup_taint = {"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
    await run.admin.merge_patch(NODES, {"spec": {"taints": [startup_taint]}}, name="n1")
    await bind(run, "n1")
    await run.run_pass()
    assert await run.ids() == asked
    assert await phases(run) == ["Registered"]

    await run.admin.merge_patch(NODES, {"spec": {"taints": None}}, name="n1")
    await run.run_pass()
    await run.run_pass()
    assert await run.signals() == []


async def test_a_balloon_that_is_never_bound_is_given_up(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    asked = await run.ids()
    run.clock.wall_offset_s += 17 * 60
    await run.run_pass()
    assert await run.ids() != asked


async def test_a_pool_that_stops_scaling_leaves_no_balloon(run: ScalingRun):
    await run.add_pods("a")
    await run.run_pass()
    await run.set_spec(autoscaling=None)
    await run.run_pass()
    assert await run.signals() == []


async def test_a_node_with_fewer_devices_than_promised_is_a_failure_of_the_shape(run: ScalingRun):
    await run.add_pods("a", units=2)
    await run.run_pass()
    await run.add_node("n1", devices=1)
    await bind(run, "n1")
    await run.run_pass()
    assert await phases(run) == ["Incomplete"]
    await asyncio.sleep(180)
    await run.run_pass()
    (shape,) = (await run.status())["shapes"]
    assert (shape["reason"], shape["nodesWithoutDevices"]) == ("FewerDevicesThanPromised", 1)
    assert "promises 2" in shape["message"]
    await run.run_pass()
    assert await run.signals() == []

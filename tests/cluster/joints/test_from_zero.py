"""A pod from no node at all to running with a warm cache, with nothing done by hand."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from api import names
from api.well_known_labels import INSTANCE_TYPE_LABEL
from tests.cluster.environment import karpenter, nodes, pods, polling
from tests.cluster.environment.gpu_nodes import STATIC_LABEL
from tests.cluster.joints.from_zero import POD, POOL, FromZero, a_pod, a_pool
from tests.cluster.system.installation import NAMESPACE
from tests.cluster.system.objects import POOLS, capacity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.environment.whole_cluster import WholeCluster

WITHIN_S: Final = 60.0
"""Goal of the whole way; nodes of kwok take neither a cloud's time nor a driver's."""
STATES: Final = {
    *("gpu-feature-discovery", "nvidia-container-toolkit-daemonset", "nvidia-dcgm-exporter"),
    *(
        "nvidia-dcgm",
        "nvidia-driver-daemonset-ubuntu24.04",
        "nvidia-operator-validator-without-plugin",
    ),
}
"""DaemonSets of the ClusterPolicy on a node whose devices are in a pool."""


async def test_a_pod_gets_node_driver_pool_and_warm_cache(
    whole: "WholeCluster", namespace: str, tmp_path: "Path", progress: "Callable[[str], None]"
):
    policy, pool = {"dcgm": {"enabled": True}}, a_pool()
    pool["spec"]["deviceSelector"] = {"include": {"products": [whole.agent.product]}}
    story = FromZero(
        cluster=whole, namespace=namespace, folder=tmp_path, say=progress, policy=policy, pool=pool
    )
    async with asyncio.TaskGroup() as group:
        signal = group.create_task(first_signal(whole.api))
        await story.play()
    check_signal(await signal)
    assert max(story.times.values()) < WITHIN_S
    plugins = await whole.api.get(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets",
        labelSelector=f"{names.POOL_LABEL}={POOL}",
    )
    assert [item["status"]["numberReady"] for item in plugins["items"]] == [1]
    await polling.eventually(lambda: all_states_run(whole.api, story.node), what="all states run")
    await story.end()


async def test_beside_devices_that_do_not_fit_a_cache_a_node_is_asked_for_whose_devices_fit(
    whole: "WholeCluster",
    namespace: str,
    tmp_path: "Path",
    create_kwok_nodes: "Callable[..., Awaitable[list[str]]]",
):
    """The first shape, which is preferred otherwise, says of its devices that they do not fit, either."""
    pool, type_ = a_pool(), "gpu-4x"
    requirements = [karpenter.a_requirement(INSTANCE_TYPE_LABEL, type_)]
    older = {
        "name": "older",
        "devices": 4,
        "computeCapability": "7.0",
        "requirements": requirements,
    }
    pool["spec"]["autoscaling"]["shapes"].insert(0, older)
    pool["spec"]["autoscaling"]["driverMinutes"] = 5
    story = FromZero(
        cluster=whole, namespace=namespace, folder=tmp_path, say=lambda _: None, pool=pool
    )
    whole.nodes[""] = replace(whole.agent, compute_capability="7.0", beside_report=None)
    labels = {STATIC_LABEL: "true", "example.com/gpu-pool": POOL, INSTANCE_TYPE_LABEL: "gpu-1x"}
    (old,) = await create_kwok_nodes(1, prefix="old", labels=labels)
    await story.apply_all()

    async def has_unit() -> bool:
        return capacity(await whole.api.get(f"{POOLS}/{POOL}")).get("total") == 1

    await polling.eventually(has_unit, what=f"{old} is in the pool")
    await whole.api.create(pods.collection(namespace), a_pod(namespace))
    pod = await pods.wait_for_pod(whole.api, namespace, POD, pods.is_running)
    node = await whole.api.get(f"{nodes.NODES}/{pod['spec']['nodeName']}")
    assert node["metadata"]["labels"][INSTANCE_TYPE_LABEL] == "gpu-1x"
    assert node["metadata"]["name"] != old
    assert len(await karpenter.claims_of(whole.api, POOL)) == 1
    within_s = (await whole.system.metrics()).total("gpu_scale_devices_within_seconds", pool=POOL)
    assert within_s == (15 + 5) * 60


async def first_signal(api: "ApiClient") -> "JsonObject":
    """Return the next pod by which a node is asked for."""
    path, selector = "/api/v1/pods", f"{names.COMPONENT_LABEL}={names.SCALE_SIGNAL}"
    version = (await api.get(path, labelSelector=selector))["metadata"]["resourceVersion"]
    async for event in api.watch(path, labelSelector=selector, resourceVersion=version):
        if event["type"] == "ADDED":
            found: JsonObject = event["object"]
            return found
    raise AssertionError("no signal")


def check_signal(pod: "JsonObject") -> None:
    """Check what tells a user what the pod is for, and that kubelet would end it."""
    metadata = pod["metadata"]
    expected = {names.TRIGGER_TYPE_LABEL: "waiting-pods", names.MODEL_LABEL: "NVIDIA-H200"}
    assert metadata["labels"].items() >= expected.items()
    assert (
        metadata["annotations"].items()
        >= {
            names.CREATED_BY_ANNOTATION: "gpu-control-plane/pool.scaling",
            names.PURPOSE_ANNOTATION: "trigger-karpenter-scaling",
            names.CLEANUP_AFTER_ANNOTATION: "node-ready",
            names.SHAPE_ANNOTATION: "devices-1",
            names.SCALE_DEVICES_ANNOTATION: "1",
        }.items()
    )
    assert pod["spec"]["activeDeadlineSeconds"] > 0


async def all_states_run(api: "ApiClient", node: str) -> bool:
    """Check that every DaemonSet of the ClusterPolicy for containers has a pod that runs on a node of Karpenter."""
    listed = await api.get(pods.collection(NAMESPACE), fieldSelector=f"spec.nodeName={node}")
    found = {
        owner["name"]
        for pod in filter(pods.is_running, listed["items"])
        for owner in pod["metadata"].get("ownerReferences") or ()
    }
    assert found >= STATES, f"{STATES - found}"
    return True

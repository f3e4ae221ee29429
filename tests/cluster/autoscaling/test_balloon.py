"""The backend balloon on the unmodified kube-scheduler. The test is cluster-autoscaler, of which there is no Go module.

cluster-autoscaler adds a node for a pod that kube-scheduler calls unschedulable and whose priority is not below -10.
"""

from typing import TYPE_CHECKING

import pytest

from api.foreign.karpenter import NODE_POOL_LABEL, REGISTERED_LABEL
from api.names import AGENT_NOT_READY_TAINT
from api.well_known_labels import INSTANCE_TYPE_LABEL
from manifests.constants import BALLOON_PRIORITY_CLASS
from manifests.scaling.priority_class import build_balloon_priority_class
from tests.cluster.environment import nodes, pods, polling
from tests.cluster.system.installation import NAMESPACE
from tests.support.scaling_stories import POOL_LABEL, ScalingPool, shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.autoscaling.real_cluster import RealScalingCluster
    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.system.installation import GpuSystem

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NODE = "balloon-node"


@pytest.fixture
async def pool(
    scaling_cluster: "RealScalingCluster", installed: "GpuSystem"
) -> "AsyncIterator[ScalingPool]":
    """A pool whose backend is balloon; the PriorityClass is the one that `render nodepool` prints."""
    api = scaling_cluster.api
    await api.create(PRIORITY_CLASSES, build_balloon_priority_class())
    await installed.reconfigure(autoscaling={"backends": ["karpenter-signal", "balloon"]})
    pool = ScalingPool(scaling_cluster, "balloon")
    await pool.create([shape("one", 1, "gpu-1x")], backend="balloon")
    yield pool
    # One that a failed test leaves keeps a Karpenter that starts later waiting for its NodeClaim.
    await nodes.delete_nodes(api, [NODE])
    await installed.reconfigure(autoscaling={"backends": ["karpenter-signal"]})
    await api.delete(f"{PRIORITY_CLASSES}/{BALLOON_PRIORITY_CLASS}")


async def test_a_balloon_is_unschedulable_then_bound_and_gives_way_to_the_pod(
    scaling_cluster: "RealScalingCluster", pool: ScalingPool
):
    api = scaling_cluster.api
    await pool.create_pod("balloon-a")
    balloon = await until_unschedulable(api, pool)
    assert balloon["spec"]["priority"] == -10
    assert (await pool.left()).gated == ["balloon-a"]
    await add_node(api, pool)

    async def is_bound() -> bool:
        found = await api.find(f"{pods.collection(NAMESPACE)}/{balloon['metadata']['name']}")
        # It goes once the devices are in the pool, which may be at once.
        return not found or found["spec"].get("nodeName") == NODE

    await polling.eventually(is_bound, what="the balloon is on the new node")
    measured = await pool.until_bound("balloon-a")
    assert measured.pods["balloon-a"].spec.node_name == NODE
    await pool.until("no balloon is left", lambda seen: not seen.signals)
    await pool.until("no startup taint is left", lambda seen: not seen.with_startup_taint)
    await pool.delete_pods("balloon-a")
    await nodes.delete_nodes(api, [NODE])
    await pool.ends_clean()


async def until_unschedulable(api: "ApiClient", pool: ScalingPool) -> "JsonObject":
    """Wait until kube-scheduler has found no node for the balloon; return it."""

    async def found() -> "JsonObject":
        signals = (await pool.left()).signals
        assert signals, "there is no balloon"
        current = await api.get(f"{pods.collection(NAMESPACE)}/{signals[0].metadata.name}")
        conditions = {item["type"]: item for item in current["status"].get("conditions") or []}
        assert conditions.get("PodScheduled", {}).get("reason") == "Unschedulable", f"{conditions}"
        return current

    return await polling.eventually(found, what="the balloon is unschedulable")


async def add_node(api: "ApiClient", pool: ScalingPool) -> None:
    """Add the node of a group whose template has the startup taint, and labels by which agents and pool know it."""
    resources = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    labels = {
        "kubernetes.io/hostname": NODE,
        POOL_LABEL: pool.name,
        INSTANCE_TYPE_LABEL: "gpu-1x",
        NODE_POOL_LABEL: f"{pool.name}-group",
        REGISTERED_LABEL: "true",
    }
    await api.create(
        nodes.NODES,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": NODE,
                "annotations": {nodes.KWOK_ANNOTATION: "fake"},
                "labels": labels,
            },
            "spec": {"taints": [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}]},
        },
    )
    status = {"status": {"capacity": resources, "allocatable": resources}}
    await api.patch(f"{nodes.NODES}/{NODE}/status", status)

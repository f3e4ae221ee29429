"""Pools of removed backends beside the unmodified Karpenter, with its feature gates CapacityBuffer and StaticCapacity.

The server's rights are those that `render rbac` prints for these backends.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from api.kinds.autoscaling import ScalingBackend
from api.names import AGENT_NOT_READY_TAINT, PRESENT_LABEL, SCALING_POOL_LABEL
from api.well_known_labels import INSTANCE_TYPE_LABEL
from tests.cluster.autoscaling.real_cluster import NODE_CLASS
from tests.cluster.environment import karpenter, polling
from tests.cluster.environment.server_process import with_image
from tests.cluster.system.installation import NAMESPACE
from tests.support.scaling_stories import POOL_LABEL, Measurement, ScalingPool, shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.autoscaling.real_cluster import RealScalingCluster
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.system.installation import GpuSystem

BACKENDS = [ScalingBackend.CAPACITY_BUFFER, ScalingBackend.KARPENTER_STATIC]
BUFFERS = f"/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/capacitybuffers"
BUFFER = "scale-buffer-of-a-former-version"

STATIC_WITHIN_S = 180.0
"""For a static node to go once it is empty: the replicas are lowered once a minute, and Karpenter drains the node."""


@pytest.fixture(scope="module")
def system(
    installed: "GpuSystem", kubectl: "Kubectl", tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[GpuSystem]":
    """Our system with these backends, and the rights that go with them; both are withdrawn after the module."""
    settings = tmp_path_factory.mktemp("backends") / "settings.yaml"
    backends = [ScalingBackend.KARPENTER_SIGNAL.value, *(item.value for item in BACKENDS)]

    async def rights(named: list[str]) -> list[dict[str, Any]]:
        settings.write_text(
            yaml.safe_dump(with_image({"autoscaling": {"backends": named}})), encoding="utf-8"
        )
        found = yaml.safe_load_all(await installed.render("rbac", "--settings", str(settings)))
        return [item for item in found if item]

    async def enable() -> str:
        before, after = await rights(backends[:1]), await rights(backends)
        added = yaml.safe_dump_all([item for item in after if item not in before])
        await kubectl("apply", "--validate=strict", "-f", "-", stdin=added)
        await kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(a_buffer()))
        await installed.reconfigure(autoscaling={"backends": backends})
        return added

    async def disable(added: str) -> None:
        await installed.check_rights()
        await installed.reconfigure(autoscaling={"backends": backends[:1]})
        await kubectl("delete", "-f", "-", stdin=added)
        await kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(a_buffer()))

    added = asyncio.run(enable())
    yield installed
    asyncio.run(disable(added))


def a_buffer() -> list[dict[str, Any]]:
    """Return a CapacityBuffer as the version that wrote them left it, with its PodTemplate."""
    metadata = {
        "name": BUFFER,
        "namespace": NAMESPACE,
        "labels": {SCALING_POOL_LABEL: "buffered"},
    }
    container = {"name": "buffer", "image": "buffer"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": metadata,
            "template": {
                "spec": {
                    "containers": [container],
                    "nodeSelector": {"example.com/no-such-node": "true"},
                }
            },
        },
        {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": metadata,
            "spec": {
                "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
                "podTemplateRef": {"name": BUFFER},
                "replicas": 1,
            },
        },
    ]


def was_removed(seen: Measurement) -> bool:
    """Say whether signals are in use, and BackendReady says why."""
    return seen.scaling.backend is ScalingBackend.KARPENTER_SIGNAL and any(
        (condition.type, condition.status, condition.reason)
        == ("BackendReady", "False", "BackendRemoved")
        for condition in seen.scaling.conditions or ()
    )


async def by_signals(cluster: "RealScalingCluster") -> None:
    """A pod of a pool that names capacity-buffer gets its node by a signal."""
    pool = ScalingPool(cluster, "buffered")
    node_pool = await pool.create_node_pool("one", "gpu-1x")
    shapes = [shape("one", 1, "gpu-1x", nodePool=node_pool)]
    await pool.create(shapes, backend=ScalingBackend.CAPACITY_BUFFER.value)
    await pool.until("signals are in use", was_removed)
    await pool.create_pod("buffered-a")
    await pool.until_bound("buffered-a")
    await pool.until_reported("GPUNodeRequested")
    await pool.ends_clean()


def a_static_node_pool(pool: str, replicas: int) -> dict[str, Any]:
    body = karpenter.a_node_pool(
        pool,
        node_class=NODE_CLASS,
        requirements=[karpenter.a_requirement(INSTANCE_TYPE_LABEL, "gpu-2x")],
        startup_taints=[{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}],
    )
    body["spec"]["template"]["metadata"] = {"labels": {POOL_LABEL: pool, PRESENT_LABEL: "true"}}
    del body["spec"]["disruption"]
    body["spec"]["replicas"] = replicas
    return body


async def replicas_follow_the_pods(cluster: "RealScalingCluster") -> None:
    """Of two static nodes the empty one goes, and the other one once its pod has ended; none comes again."""
    pool = ScalingPool(cluster, "static", node_pools=["static"])
    await cluster.api.create(karpenter.NODE_POOLS, a_static_node_pool("static", 2))
    await pool.create([shape("two", 2, "gpu-2x")])
    await pool.until(
        "both nodes are in the pool",
        lambda seen: seen.pool.status.capacity.available == 4 and not seen.with_startup_taint,
    )
    await pool.create_pod("static-a")
    await pool.until_bound("static-a")
    await pool.patch({"spec": {"autoscaling": {"backend": ScalingBackend.KARPENTER_STATIC.value}}})
    await pool.until("signals are in use", was_removed)
    measured = await pool.until(
        "the empty node goes", lambda seen: len(seen.nodes) == 1, within_s=STATIC_WITHIN_S
    )
    assert measured.pods["static-a"].spec.node_name == measured.nodes[0].metadata.name
    await pool.ends_clean(within_s=STATIC_WITHIN_S)


async def the_buffer_asks_for_nothing(cluster: "RealScalingCluster") -> None:
    async def is_empty() -> bool:
        buffer = await cluster.api.get(f"{BUFFERS}/{BUFFER}")
        assert buffer["spec"]["replicas"] == 0
        return True

    await polling.eventually(is_empty, what="the buffer has no replicas")


async def test_removed_backends_are_served_by_signals_and_their_nodes_go(
    system: "GpuSystem", scaling_cluster: "RealScalingCluster"
):
    """Side by side: most of the time goes to Karpenter's."""
    assert system.server.process.running
    async with asyncio.TaskGroup() as group:
        for story in (by_signals, replicas_follow_the_pods, the_buffer_asks_for_nothing):
            group.create_task(story(scaling_cluster), name=story.__name__)

"""A node that Karpenter made serves its pool: agents and plugins run before its startup taint goes, and pods after."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from tests.cluster.autoscaling.test_karpenter import a_signal, signal
from tests.cluster.environment import client, nodes, pods, polling
from tests.cluster.system.installation import NAMESPACE
from tests.cluster.system.objects import POOLS, capacity
from tests.support.scaling_stories import POOL_LABEL, ScalingPool

if TYPE_CHECKING:
    from tests.cluster.autoscaling.real_cluster import RealScalingCluster

_UNITS_WITHIN_S: Final = 120


def units_of(node: dict[str, Any], pool: ScalingPool) -> str | None:
    """Return the units of the pool that kubelet allocates, as the node shows them."""
    found: str | None = node["status"].get("allocatable", {}).get(f"gpu.deckhouse.io/{pool.name}")
    return found


async def test_node_of_a_hand_made_signal_serves_its_pool(
    scaling_cluster: "RealScalingCluster", namespace: str
):
    cluster = scaling_cluster
    api = cluster.api
    pool = ScalingPool(cluster, "by-hand")
    node_pool = await pool.create_node_pool("any", "gpu-2x")
    await api.create(
        POOLS,
        {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUPool",
            "metadata": {"name": pool.name},
            "spec": {
                "assignment": {"requireAnnotation": False},
                "nodeSelector": {"matchLabels": {POOL_LABEL: pool.name}},
            },
        },
    )
    request = f"{node_pool}-1"
    await signal(api, namespace, a_signal(request))

    # Its taint goes at once when it has units, and each version of the node is an event of a watch.
    async with asyncio.timeout(_UNITS_WITHIN_S):
        found = await client.watch_until(
            api,
            nodes.NODES,
            satisfied=lambda all_: any(units_of(item, pool) == "2" for item in all_.values()),
            labelSelector=f"{SCALE_REQUEST_LABEL}={request}",
        )
    ((node, current),) = found.items()
    assert AGENT_NOT_READY_TAINT in {item["key"] for item in current["spec"].get("taints", ())}

    async def plugin_runs() -> bool:
        selector = f"gpu.deckhouse.io/pool={pool.name}"
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
        plugins = (await api.get(path, labelSelector=selector))["items"]
        ready = [plugin.get("status", {}).get("numberReady") for plugin in plugins]
        assert ready == [1], f"{plugins}"
        return True

    await polling.eventually(plugin_runs, what="the plugin runs beside the startup taint")
    await pool.create_pod("first", 1)
    await api.delete(f"{pods.collection(namespace)}/scale-{request}")
    # `node.handover` has removed the taint.
    bound = await pods.wait_for_pod(api, namespace, "first")
    assert bound["spec"]["nodeName"] == node
    await pool.delete_pods("first")
    began = asyncio.get_running_loop().time()

    async def is_gone() -> bool:
        assert not await api.find(f"{nodes.NODES}/{node}")
        return capacity(await api.get(f"{POOLS}/{pool.name}")).get("total") == 0

    await polling.eventually(is_gone, what="the empty node is gone")
    print(f"pod gone -> node gone {asyncio.get_running_loop().time() - began:.1f} s")

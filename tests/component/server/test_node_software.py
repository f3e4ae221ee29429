"""A whole server with `node_software.enabled` brings NVIDIA's documented ClusterPolicy to Ready; without it asks for none."""

import asyncio
from typing import Any

import pytest

from kube.resources import CLUSTER_POLICIES, CUSTOM_RESOURCE_DEFINITIONS
from manifests.constants import DEFAULT_NAMESPACE
from manifests.nvidia.operator_crds import build_operator_crds
from simulator.node.daemon_sets import FakeDaemonSets
from simulator.node.kubelet import FakeKubelet, register_node
from tests.component.reconciler.operator_world import IMAGES
from tests.support.loop_clock import ServerClock
from tests.support.nvidia.operator_kinds import sample
from tests.support.running_server import SERVER_USER, Cluster, a_server

pytestmark = pytest.mark.looptime

Json = dict[str, Any]

NFD = "feature.node.kubernetes.io"
GPU_NODE = {
    f"{NFD}/pci-10de.present": "true",
    f"{NFD}/kernel-version.full": "6.8.0-60-generic",
    f"{NFD}/system-os_release.ID": "ubuntu",
    f"{NFD}/system-os_release.VERSION_ID": "24.04",
}
CHECKS = 60
"""One a second."""
RUNTIME = {"containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "6.8.0-60-generic"}


async def install(cluster: Cluster) -> str:
    """Install the kinds, a node with a GPU, and the sample; return the sample's name."""
    for crd in build_operator_crds():
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    await register_node(cluster.client, "n1", {}, labels=GPU_NODE, system=RUNTIME)
    body = sample("ClusterPolicy")
    await cluster.client.create(CLUSTER_POLICIES, body)
    return str(body["metadata"]["name"])


async def test_the_documented_cluster_policy_becomes_ready(cluster: Cluster):
    name = await install(cluster)
    clock = ServerClock()
    software = {"enabled": True, "images": IMAGES}
    external = {"operands": "External"}
    kubelet = FakeKubelet(cluster.client, clock)
    sets = FakeDaemonSets(cluster.client, clock, namespace=DEFAULT_NAMESPACE)
    async with (
        a_server(cluster, clock=clock, node_software=software, bootstrap=external) as server,
        asyncio.TaskGroup() as group,
    ):
        doubles = [group.create_task(item.run()) for item in (kubelet, sets)]
        await server.until_ready()

        status: Json = {}
        states: dict[str, Json] = {}
        for _ in range(CHECKS):
            found = await cluster.client.get(CLUSTER_POLICIES, Json, name)
            status = found.get("status", {})
            states = {item["name"]: item for item in status.get("states", ())}
            # Before it knows the node the policy is ready, since no node has a GPU.
            if status.get("state") == "ready" and states["state-driver"].get("nodesReady"):
                break
            await asyncio.sleep(1)
        assert status["state"] == "ready"
        assert {state["state"] for state in states.values()} == {"ready", "disabled"}
        assert states["state-operator-metrics"]["state"] == "ready"
        assert states["state-driver"]["nodesReady"] == states["state-driver"]["nodesTotal"] == 1
        for double in doubles:
            double.cancel()


async def test_without_the_setting_no_request_for_its_kinds_is_made(cluster: Cluster):
    await install(cluster)
    async with a_server(cluster) as server:
        await server.until_ready()
        await cluster.until_stable()
        asked = [request.path for request in cluster.api.requests if request.user == SERVER_USER]
        assert asked
        assert [item for item in asked if "nvidia.com" in item] == []

"""One device plugin for all pools of a node, with the rights that we render, at the real API server."""

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.rights import RBAC as NODE_AGENT_RBAC
from agent.serving import ServedPools
from agent.sources import ClusterSource
from api.poolconfig import HandOut
from kube.client import KubeClient
from kube.configuration import load_configuration
from manifests import constants
from manifests.rbac import build_node_agent_rbac
from manifests.rendering import render
from server.clock import SystemClock
from simulator.kubelet_plugins import PluginsOfKubelet
from tests.cluster.environment import polling
from tests.cluster.manifests.objects import a_pool

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.manifests.conftest import Installed

DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"
RESOURCE = "gpu.deckhouse.io/train"


async def a_card(api: "ApiClient", name: str, node: str, pool: str) -> None:
    body: dict[str, Any] = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name},
    }
    await api.create(DEVICES, body)
    status = {"nodeName": node, "uuid": f"GPU-{name}", "poolRef": {"name": pool}}
    await api.patch(f"{DEVICES}/{name}/status", {"status": status})


async def test_the_agent_serves_its_node_with_its_own_rights(
    api: "ApiClient",
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    installed: "Installed",
    pools: str,
) -> None:
    roles = render(build_node_agent_rbac(NODE_AGENT_RBAC, installed.namespace))
    await kubectl("apply", "-f", "-", stdin=roles)
    user = constants.service_account_username(installed.namespace, constants.NODE_AGENT)
    clock = SystemClock()
    configuration = await load_configuration(clock, kubeconfig=str(control_plane.kubeconfig(user)))
    await api.create(pools, a_pool("train"))
    await a_card(api, "agent-here", "node-here", "train")
    await a_card(api, "agent-there", "node-there", "train")
    try:
        with tempfile.TemporaryDirectory(prefix="gpu") as folder:
            async with (
                PluginsOfKubelet(Path(folder)) as kubelet,
                KubeClient(configuration, clock) as client,
                asyncio.TaskGroup() as group,
            ):
                served = ServedPools(kubelet.directory, clock, hand_out=HandOut.CDI)
                source = ClusterSource(client, clock, node="node-here", taker=served)
                tasks = [group.create_task(source.run()), group.create_task(served.run())]

                async def offered(*expected: str) -> None:
                    async def is_so() -> bool:
                        found = kubelet.devices.get(RESOURCE, ())
                        return tuple(one.id for one in found) == expected

                    await polling.eventually(is_so, what=f"{expected} offered to kubelet")

                await offered("GPU-agent-here")
                await a_card(api, "agent-more", "node-here", "train")
                await offered("GPU-agent-here", "GPU-agent-more")
                await api.delete(f"{DEVICES}/agent-here")
                await offered("GPU-agent-more")
                for task in tasks:
                    task.cancel()
    finally:
        await api.delete(DEVICES)
        await kubectl("delete", "-f", "-", stdin=roles)

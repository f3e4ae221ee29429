"""The agent as a process, with the rights and under the policy that we render, at the real API server."""

import contextlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.rbac import NAMESPACED_RBAC, RBAC
from api.foreign.nodefeature import AGENT_INSTANCES, AgentDevice
from demo.demo_folder import demo_folder
from manifests import constants
from manifests.install.agent_policy import build_agent_policy
from manifests.install.rbac import build_rbac
from manifests.yaml import render
from tests.cluster.environment import client, polling
from tests.cluster.environment.server_process import installed_command
from tests.cluster.manifests.conftest import created, install_node_features
from tests.cluster.manifests.objects import a_pool
from tests.support import ports
from tests.support.kubelet.plugins import PluginsOfKubelet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.environment.processes import ChildProcess
    from tests.cluster.manifests.conftest import Installed

GROUP = "/apis/gpu.deckhouse.io/v1alpha1"
DEVICES = f"{GROUP}/gpudevices"
ADDRESS = "0000:3b:00.0"
RESOURCE = "gpu.deckhouse.io/train"


def features_of(installed: "Installed") -> str:
    return f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{installed.namespace}/nodefeatures"


async def a_device(api: client.ApiClient, name: str, node: str, pool: str) -> None:
    body: dict[str, Any] = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name},
    }
    await api.create(DEVICES, body)
    status = {"nodeName": node, "uuid": f"GPU-{name}", "poolRef": {"name": pool}}
    await api.patch(f"{DEVICES}/{name}/status", {"status": status})


@pytest.fixture
async def nodes(
    api: client.ApiClient,
    kubectl: "Kubectl",
    installed: "Installed",
    create_nodes: "Callable[..., Awaitable[list[str]]]",
) -> "AsyncIterator[list[str]]":
    """Two nodes, whose agents have their rights, and are held to them."""
    roles = render(
        build_rbac(
            RBAC,
            name=constants.NODE_AGENT,
            namespaced_rules=NAMESPACED_RBAC,
            namespace=installed.namespace,
        )
    )
    await install_node_features(kubectl)
    await kubectl("apply", "-f", "-", stdin=roles)
    async with contextlib.AsyncExitStack() as stack:
        for part in build_agent_policy(installed.namespace):
            await stack.enter_async_context(created(api, part))
        yield await create_nodes(2)
    await api.delete(DEVICES)
    await api.delete(features_of(installed))
    await kubectl("delete", "--wait=false", "-f", "-", stdin=roles)


@pytest.fixture
async def kubelet() -> "AsyncIterator[PluginsOfKubelet]":
    with demo_folder() as folder:
        async with PluginsOfKubelet(Path(folder)) as kubelet:
            yield kubelet


@pytest.fixture
async def agent(
    control_plane: "ControlPlane",
    installed: "Installed",
    nodes: list[str],
    kubelet: PluginsOfKubelet,
    tmp_path: Path,
) -> "AsyncIterator[ChildProcess]":
    """All roles of the first node, which has a device and no driver."""
    kubeconfig = await control_plane.service_account_kubeconfig(
        installed.namespace, constants.NODE_AGENT, node=nodes[0]
    )
    arguments = {
        "--node": nodes[0],
        "--namespace": installed.namespace,
        "--roles": "inventory,health,mig,device-plugin",
        "--kubeconfig": kubeconfig,
        "--plugins-directory": kubelet.directory,
        "--host": "127.0.0.1",
        "--port": ports.free_port(),
    }
    for name in (
        "pod-resources-directory",
        "run-directory",
        "cdi-directory",
        "sysfs",
        "driver-root",
    ):
        arguments[f"--{name}"] = tmp_path / name
        (tmp_path / name).mkdir()
    device = tmp_path / "sysfs/bus/pci/devices" / ADDRESS
    device.mkdir(parents=True)
    for file, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        (device / file).write_text(f"{text}\n")
    flat = [str(part) for pair in arguments.items() for part in pair]
    name = f"agent-{secrets.token_hex(3)}"
    agent = control_plane.run.child(name, [*installed_command(), "agent", *flat])
    agent.start()
    yield agent
    agent.kill9()


async def test_the_agent_serves_its_node_and_no_other(
    api: client.ApiClient,
    agent: "ChildProcess",
    nodes: list[str],
    kubelet: PluginsOfKubelet,
    pools: str,
) -> None:
    await api.create(pools, a_pool("train"))
    await a_device(api, "agent-here", nodes[0], "train")
    await a_device(api, "agent-there", nodes[1], "train")

    async def offered(*expected: str) -> None:
        async def is_so() -> bool:
            found = kubelet.devices.get(RESOURCE, ())
            return tuple(item.ID for item in found) == expected

        await polling.eventually(is_so, what=f"{expected} offered to kubelet")

    await offered("GPU-agent-here")
    await a_device(api, "agent-more", nodes[0], "train")
    await offered("GPU-agent-here", "GPU-agent-more")
    await api.delete(f"{DEVICES}/agent-here")
    await offered("GPU-agent-more")
    assert "Forbidden" not in agent.logs()


async def test_the_agent_publishes_what_it_finds_under_its_nodes_name(
    api: client.ApiClient, agent: "ChildProcess", nodes: list[str], installed: "Installed"
) -> None:
    path = features_of(installed)

    async def published() -> Any:
        with contextlib.suppress(client.ApiRefusedError):
            return await api.get(f"{path}/{constants.AGENT_FEATURE_PREFIX}{nodes[0]}")
        return None

    feature = await polling.eventually(published, what="the NodeFeature of the node's agent")
    (device,) = feature["spec"]["features"]["instances"][AGENT_INSTANCES]["elements"]
    assert device["attributes"][AgentDevice.ADDRESS] == ADDRESS
    (owner,) = feature["metadata"]["ownerReferences"]
    node = await api.get(f"/api/v1/nodes/{nodes[0]}")
    # The garbage collector goes by the UID.
    assert (owner["kind"], owner["name"], owner["uid"]) == (
        "Node",
        nodes[0],
        node["metadata"]["uid"],
    )
    assert [item["metadata"]["name"] for item in (await api.get(path))["items"]] == [
        feature["metadata"]["name"]
    ]
    assert "Forbidden" not in agent.logs()

"""A pool's plugin and the agent of its node as two processes: the node's condition says what the plugin finds."""

import asyncio
import signal
from pathlib import Path

import pytest

from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import API_VERSION
from cli.exit_status import OK
from kube.resources import GPU_NODE_INVENTORIES
from tests.component.agent.node import RESOURCE, MountedConfig
from tests.component.agent.test_command import a_process
from tests.support.kubelet.admission import KubeletOfNode
from tests.support.nvml.library import FakeNvml, NoCompilerError, a_device
from tests.support.polling import LIMIT_S, until, until_async
from tests.support.ports import free_port
from tests.support.running_server import Cluster, a_cluster


async def condition(cluster: Cluster) -> tuple[str, str]:
    """Reason and message of AgentDegraded."""
    current = await cluster.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, "n1")
    for item in current.status.conditions or ():
        if item.type == "AgentDegraded":
            return item.reason, item.message
    return "", ""


async def test_an_invalid_config_file_is_in_the_nodes_condition_until_it_is_corrected(
    node: KubeletOfNode, folder: Path
):
    libraries = folder / "root" / "usr" / "lib64"
    libraries.mkdir(parents=True)
    try:
        FakeNvml(libraries, a_device(0))
    except NoCompilerError as missing:
        pytest.skip(str(missing))
    mounted = MountedConfig(folder / "pool")
    mounted.put(b"rubbish")
    reported = folder / "run" / "plugins"
    async with a_cluster(folder) as cluster:
        await cluster.install()
        await cluster.client.create(
            GPU_NODE_INVENTORIES,
            {"apiVersion": API_VERSION, "kind": "GPUNodeInventory", "metadata": {"name": "n1"}},
        )
        common = {
            "node": "n1",
            "plugins_directory": node.plugins.directory,
            "pod_resources_directory": node.pod_resources.directory,
            "run_directory": folder / "run",
            "kubeconfig": cluster.kubeconfig(),
            "host": "127.0.0.1",
        }
        async with (
            a_process(
                roles="inventory,health",
                xid_actions="13=GPUReset,94=None",
                cdi_directory=folder / "cdi",
                driver_root=folder / "root",
                dev_root=folder / "dev",
                sysfs=folder / "sys",
                procfs=folder / "proc",
                port=free_port(),
                **common,
            ),
            a_process(
                roles="device-plugin",
                config=mounted.path,
                pool="whole",
                port=free_port(),
                **common,
            ) as plugin,
        ):

            async def is_reported() -> bool:
                reason, message = await condition(cluster)
                return reason == "BadConfig" and "plugin of pool whole: " in message

            async def is_over() -> bool:
                return "pool whole" not in (await condition(cluster))[1]

            await until_async(is_reported)
            mounted.put_devices("GPU-1")
            await until(lambda: node.plugins.capacity(RESOURCE) == 1)
            await until_async(is_over)
            assert list(reported.iterdir()) == []

            mounted.put(b"rubbish again")
            await until_async(is_reported)
            plugin.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LIMIT_S):
                _, error = await plugin.communicate()
            assert plugin.returncode == OK, error.decode()
            assert list(reported.iterdir()) == []
            await until_async(is_over)

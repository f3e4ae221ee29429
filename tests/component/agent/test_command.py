"""`gpu-control-plane agent` as a process: it serves, knows its pods, says that it is ready, and stops when told."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from cli.exit_status import MISUSED, OK
from cli.main import run
from kube.resources import PODS
from tests.component.agent.node import RESOURCE, MountedConfig
from tests.support.bound_pods import a_bound_pod
from tests.support.kubelet.admission import KubeletOfNode
from tests.support.polling import LIMIT_S, until, until_async
from tests.support.running_server import a_cluster

ENDPOINT = "gpu.deckhouse.io_whole.sock"


@asynccontextmanager
async def a_process(**options: object) -> AsyncIterator[Process]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", "cli", "agent", *flags, stderr=PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_command_serves_the_file_until_sigterm(
    node: KubeletOfNode, folder: Path, unused_tcp_port: int
):
    mounted = MountedConfig(folder / "pool")
    mounted.put_devices("GPU-1", "GPU-2", "GPU-3")
    base = f"http://127.0.0.1:{unused_tcp_port}"
    async with (
        a_cluster(folder) as cluster,
        a_process(
            node="n1",
            roles="device-plugin",
            config=mounted.path,
            plugins_directory=node.plugins.directory,
            pod_resources_directory=node.pod_resources.directory,
            run_directory=folder,
            kubeconfig=cluster.kubeconfig(),
            host="127.0.0.1",
            port=unused_tcp_port,
        ) as process,
        aiohttp.ClientSession() as session,
    ):

        async def is_ready() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{base}/readyz") as answer:
                    return answer.status == 200
            return False

        await until(lambda: node.plugins.capacity(RESOURCE) == 3)
        await until_async(is_ready)
        async with session.get(f"{base}/livez") as answer:
            assert answer.status == 200
        async with session.get(f"{base}/metrics") as answer:
            assert "gpu_agent_plugin_registered" in await answer.text()

        assigned = a_bound_pod("p", assigned={"main": ("GPU-2",)})
        body = {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(assigned)}
        body["spec"]["containers"][0]["image"] = "any"
        await cluster.client.create(PODS, body)
        (admitted,) = (await node.admit(await cluster.stored_pod("p"))).values()
        assert admitted.units == {RESOURCE: {"GPU-2"}}
        assert admitted.responses[RESOURCE].envs["GPU_UNITS"] == "GPU-2"

        await node.plugins.stop()
        async with session.get(f"{base}/readyz") as answer:
            assert answer.status == 503
            assert await answer.text() == f"{RESOURCE} is not registered with kubelet\n"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_S):
            _, error = await process.communicate()
    assert process.returncode == OK, error.decode()
    assert not (node.plugins.directory / ENDPOINT).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--roles", "device-plugin"], id="no node"),
        pytest.param(["--node", "n1"], id="no role"),
        pytest.param(["--node", "n1", "--roles", "cook"], id="unknown role"),
        pytest.param(["--node", "n1", "--roles", "health"], id="a role that needs another"),
        pytest.param(
            ["--node", "n1", "--roles", "inventory", "--config", "f"], id="a list for nobody"
        ),
        pytest.param(
            ["--node", "n1", "--roles", "device-plugin", "--hand-out", "Magic"], id="unknown way"
        ),
        pytest.param(
            ["--node", "n1", "--roles", "inventory", "--xid-actions", "13;31"], id="no actions"
        ),
        pytest.param(
            ["--node", "n1", "--roles", "device-plugin", "--xid-actions", "13=None"],
            id="Xids for nobody",
        ),
        pytest.param(
            ["--node", "n1", "--roles", "device-plugin", "--pool", "p"], id="a pool without a list"
        ),
        pytest.param(
            ["--node", "n1", "--roles", "device-plugin", "--config", "f", "--pool", "../p"],
            id="a pool of no name",
        ),
    ],
)
def test_an_invalid_command_line_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    try:
        assert run(["agent", *arguments]) == MISUSED
    except SystemExit as end:
        assert end.code == MISUSED  # noqa: PT017  # some are refused by the parser, some by us
    assert capsys.readouterr().err


async def test_a_missing_way_to_the_api_server_is_named(tmp_path: Path, unused_tcp_port: int):
    kubeconfig = tmp_path / "none"
    async with a_process(
        node="n1", roles="device-plugin", kubeconfig=kubeconfig, port=unused_tcp_port
    ) as process:
        async with asyncio.timeout(LIMIT_S):
            _, error = await process.communicate()
    assert process.returncode == MISUSED
    assert str(kubeconfig) in error.decode()
